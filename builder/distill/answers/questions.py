"""Questions that the target writes itself, to be prompts.

"Magpie" (Xu et al. 2024): an instruction-tuned model that is given only the empty user turn writes
a user's question. Openings steer it towards kinds of task; unusable questions are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from specdec.builder.distill.answers.answering import (
    AnswerSettings,
    in_workers,
    user_header_ids,
    worker_device,
)
from specdec.builder.distill.answers.target_runner import TargetRunner
from specdec.builder.distill.answers.writer import Job, WriterSettings, write
from specdec.builder.distill.prompts import Prompt, load, save, templates
from specdec.builder.distill.seeding import seeded

MAX_QUESTION = 80
"""Most tokens of a sampled user turn."""
MAX_LEN = 160
"""Positions in the cache of each sequence: template and user turn."""


def is_usable(text: str) -> bool:
    """Return whether a sampled user turn is worth answering.

    It needs some words, few of them twice, no markup, and few symbols.
    """
    words = text.split()
    if not 3 <= len(words) <= 60 or "<|" in text or "�" in text:
        return False
    letters = sum(c.isalpha() or c.isspace() for c in text)
    return letters > 0.75 * len(text) and len(set(words)) > 0.5 * len(words)


def sample_questions(runner: TargetRunner, tokenizer: Any, num: int, seed: int) -> Iterator[str]:
    """Yield different user turns that the target writes at temperature 1, from `num` attempts.

    Each attempt begins with an opening of ours.
    """
    rng = seeded(seed)
    header = user_header_ids(tokenizer)
    runner.set_prefix(header)
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
    for done in write(runner, jobs, settings):
        if done.tokens[-1] != tokenizer.eos_token_id:
            continue
        ids = tails[done.job.index] + done.tokens[:-1]
        text = tokenizer.decode(ids).strip()
        key = re.sub(r"\W+", " ", text.lower())
        if is_usable(text) and key not in seen:
            seen.add(key)
            yield text


def _question_worker(
    worker: int, model_dir: Path, out: Path, num: int, settings: AnswerSettings
) -> None:
    device, num_workers = worker_device(settings)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    runner = TargetRunner(model_dir, settings.num_slots, MAX_LEN, device)
    seed = settings.seed + 100 + worker
    share = num // num_workers + (worker < num % num_workers)
    found = sample_questions(runner, tokenizer, share, seed)
    prompts = [Prompt(i, "sampled", [{"role": "user", "content": t}]) for i, t in enumerate(found)]
    save(_part(out, worker), prompts)


def _part(out: Path, worker: int) -> Path:
    return out.with_suffix(f".part{worker}")


def sample(model_dir: Path, out: Path, num: int, settings: AnswerSettings) -> list[str]:
    """Return at most `num` questions that the target wrote, sampled in the workers.

    Until they are joined, the workers' parts are kept beside `out`.
    """
    num_workers = in_workers(_question_worker, (model_dir, out, num, settings), settings)
    sampled: list[str] = []
    for worker in range(num_workers):
        sampled += [prompt.messages[0]["content"] for prompt in load(_part(out, worker))]
        _part(out, worker).unlink()
    return sampled
