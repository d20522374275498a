"""Questions that the target writes itself.

"Magpie" (Xu et al. 2024): an instruction-tuned model that is given only the empty user turn writes
a user's question. Openings steer it towards kinds of task; unusable questions are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from builder.distill import templates
from builder.distill.seeding import seeded
from builder.distill.teacher import Teacher
from builder.distill.writer import Job, WriterSettings, write

MAX_QUESTION = 80
"""Most tokens of a sampled user turn."""


def user_header_ids(tokenizer: Any) -> list[int]:
    """Return the token ids up to the point where the user's text would begin."""
    marker = "\x00"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": marker}], add_generation_prompt=False, tokenize=False
    )
    return [int(i) for i in tokenizer.encode(text.split(marker)[0], add_special_tokens=False)]


def sane(text: str) -> bool:
    """Return whether a sampled user turn is worth answering.

    It needs some words, hardly any twice, no markup, and few symbols.
    """
    words = text.split()
    if not 3 <= len(words) <= 60 or "<|" in text or "�" in text:
        return False
    letters = sum(c.isalpha() or c.isspace() for c in text)
    return letters > 0.75 * len(text) and len(set(words)) > 0.5 * len(words)


def sample_questions(teacher: Teacher, tokenizer: Any, num: int, seed: int) -> Iterator[str]:
    """Yield different user turns that the target writes at temperature 1, from `num` attempts.

    Each attempt begins with an opening of ours.
    """
    rng = seeded(seed)
    header = user_header_ids(tokenizer)
    teacher.set_prefix(header)
    openings = [rng.choice(templates.OPENINGS) for _ in range(num)]
    # The trailing space is left out: it belongs to the token of the next word.
    tails = [tokenizer.encode(o.rstrip(" "), add_special_tokens=False) for o in openings]
    first = tokenizer.encode("\n", add_special_tokens=False)
    jobs = (
        Job(i, header + tail if tail else header[:-1] + first, 1.0, MAX_QUESTION)
        for i, tail in enumerate(tails)
    )
    stop = frozenset(tokenizer.all_special_ids)
    settings = WriterSettings(stop_ids=stop, num_top=1, num_candidates=64, seed=seed)
    seen: set[str] = set()
    for done in write(teacher, jobs, settings):
        if done.tokens[-1] != tokenizer.eos_token_id:
            continue
        ids = tails[done.job.index] + done.tokens[:-1]
        text = tokenizer.decode(ids).strip()
        key = re.sub(r"\W+", " ", text.lower())
        if sane(text) and key not in seen:
            seen.add(key)
            yield text
