"""Measuring a draft's greedy acceptance by column, against kept answers of the target."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from specdec.builder.distill import measure
from specdec.builder.distill.answers.target_runner import TargetRunner
from specdec.builder.distill.answers.writer import Job, WriterSettings, write
from specdec.builder.distill.arithmetic import training_device
from specdec.builder.distill.network import DraftNetwork
from specdec.builder.distill.prompts import chat_ids
from specdec.builder.prompt_files import column_of


@dataclass(frozen=True)
class Conversation:
    """A prompt as token ids, its column in the report, and the target's greedy answer."""

    column: str
    prompt: list[int]
    answer: list[int]


def _write_answers(
    runner: TargetRunner, tokenizer: Any, prompts: list[list[int]], max_new: int
) -> list[list[int]]:
    jobs = (Job(i, prompt, 0.0, max_new) for i, prompt in enumerate(prompts))
    stop = frozenset(tokenizer.all_special_ids)
    writing = WriterSettings(stop, num_top=1, cut_loops=False)
    answers: list[list[int]] = [[] for _ in prompts]
    for done in write(runner, jobs, writing):
        answers[done.job.index] = done.tokens
    return answers


def conversations(
    target_dir: Path, prompts_file: Path, cache_dir: Path, max_new: int, num_slots: int = 16
) -> list[Conversation]:
    """Return all turns of a prompts file with the target's greedy answers, kept in `cache_dir`.

    Each line of the file is {question_id, category, turns}. An answer has at most `max_new` tokens.
    """
    raw = prompts_file.read_bytes()
    key = hashlib.sha256(raw + str(max_new).encode()).hexdigest()[:16]
    cache = cache_dir / f"answers-{key}.json"
    if cache.exists():
        return [Conversation(**row) for row in json.loads(cache.read_text())]
    tokenizer = AutoTokenizer.from_pretrained(target_dir)
    questions = [json.loads(line) for line in raw.decode().splitlines()]
    threads: list[list[dict[str, str]]] = [[] for _ in questions]
    found: list[Conversation] = []
    for turn in range(max(len(q["turns"]) for q in questions)):
        live = [i for i, q in enumerate(questions) if len(q["turns"]) > turn]
        for i in live:
            threads[i].append({"role": "user", "content": questions[i]["turns"][turn]})
        prompts = chat_ids(tokenizer, [threads[i] for i in live])
        max_len = max(map(len, prompts)) + max_new + 2
        runner = TargetRunner(target_dir, num_slots, max_len, training_device())
        for i, prompt, answer in zip(
            live, prompts, _write_answers(runner, tokenizer, prompts, max_new), strict=True
        ):
            found.append(Conversation(column_of(questions[i]["category"]), prompt, answer))
            text = str(tokenizer.decode(answer, skip_special_tokens=True))
            threads[i].append({"role": "assistant", "content": text})
    cache_dir.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps([vars(c) for c in found]))
    return found


@torch.inference_mode()
def match_row(draft: DraftNetwork, prompt: list[int], answer: list[int]) -> list[bool]:
    """Return for each answer token whether the draft proposes it, given all tokens before it."""
    tokens = torch.tensor(prompt + answer[:-1])
    rows = torch.arange(len(prompt) - 1, len(tokens))
    logits = draft(tokens, [len(tokens)], rows)
    best = draft.draft_ids[logits.argmax(dim=1)]
    return [bool(x) for x in (best == torch.tensor(answer)).tolist()]


def by_column(
    draft: DraftNetwork, items: list[Conversation], num_draft: int
) -> dict[str, measure.Acceptance]:
    """Return the acceptance of each column, and of all together under `all`."""
    parts: dict[str, list[measure.Acceptance]] = defaultdict(list)
    for item in items:
        if len(item.answer) > 1:
            matches = match_row(draft, item.prompt, item.answer)
            one = measure.rounds(matches, num_draft)
            parts[item.column].append(one)
            parts["all"].append(one)
    return {column: measure.total(some, num_draft) for column, some in parts.items()}


def report(figures: dict[str, measure.Acceptance]) -> str:
    """Return a Markdown table by column: rounds, tau, alpha, accepted over drafted."""
    lines = ["| column | rounds | tau | alpha | accepted / drafted |", "|---|---|---|---|---|"]
    for column, one in figures.items():
        lines.append(
            f"| {column} | {one.num_rounds} | {one.tau:.2f} | {one.alpha:.3f} | "
            f"{one.accepted_over_drafted:.3f} |"
        )
    return "\n".join(lines)
