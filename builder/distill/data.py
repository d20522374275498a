"""Training batches from shards of answers, and the choice of the draft vocabulary."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

HELD_OUT_EVERY = 20
"""Step between held-out prompts: those whose index is a multiple of it are not trained on."""
PAD_STEP = 256
"""Step to a multiple of which training pads the tokens and rows of a batch."""


class Features(Protocol):
    """The target's states over the inputs of an example, in memory or on disk."""

    def load(self) -> Tensor:
        """Return the states: [inputs, taps, hidden] bf16."""


@dataclass(frozen=True)
class FeatureRows:
    """Features in a file, which are large and therefore read only when they are needed."""

    path: Path
    start: int
    stop: int

    def load(self) -> Tensor:
        """Return the states: [inputs, taps, hidden] bf16."""
        with safe_open(self.path, "pt") as file:
            rows: Tensor = file.get_slice("features")[self.start : self.stop]
            return rows


@dataclass(frozen=True)
class Example:
    """An answered prompt.

    `prompt` and `answer` are int64 token ids. `top_ids` and `top_logprobs` [answer tokens, num_top]
    are the target's most likely tokens at each token of the answer.
    """

    index: int
    prompt: Tensor
    answer: Tensor
    top_ids: Tensor
    top_logprobs: Tensor
    features: Features | None = None

    @property
    def inputs(self) -> Tensor:
        """The tokens that the draft reads: prompt and answer without its last token."""
        return torch.cat([self.prompt, self.answer[:-1]])

    @property
    def greedy(self) -> bool:
        """Whether every answer token is the target's most likely one."""
        return bool((self.top_ids[:, 0] == self.answer).all())


@dataclass(frozen=True)
class Batch:
    """Examples one after another: tokens int64 [sum(lens)].

    `rows` are the positions that predict answer tokens. For each of them there are the answer token
    int64 [rows] and the target's most likely tokens, ids int64 and log-probabilities float32
    [rows, num_top].
    """

    tokens: Tensor
    lens: list[int]
    rows: Tensor
    answer: Tensor
    top_ids: Tensor
    top_logprobs: Tensor


def read_shards(folder: Path) -> list[Example]:
    """Return all examples of a folder of shards, ordered by prompt index."""
    examples: list[Example] = []
    for path in sorted(folder.glob("*.safetensors")):
        shard = load_file(path)
        prompts = shard["prompt"].long().split(shard["prompt_len"].tolist())
        lens = shard["answer_len"].tolist()
        answers = shard["answer"].long().split(lens)
        # The arrays stay int32 and float16 until they are batched, because they are large.
        ids, logprobs = shard["top_ids"].split(lens), shard["top_logprobs"].split(lens)
        rows = zip(shard["index"].tolist(), prompts, answers, ids, logprobs, strict=True)
        found = [Example(*row) for row in rows]
        if (features := path.with_suffix(".features")).exists():
            ends = [0, *itertools.accumulate(len(e.inputs) for e in found)]
            spans = zip(found, itertools.pairwise(ends), strict=True)
            found = [replace(e, features=FeatureRows(features, *span)) for e, span in spans]
        examples += found
    return sorted(examples, key=lambda e: e.index)


def split(examples: list[Example]) -> tuple[list[Example], list[Example]]:
    """Return (training, held out) examples; the latter are greedy answers to every 20th prompt.

    Other answers to these prompts are in neither list.
    """
    train = [e for e in examples if e.index % HELD_OUT_EVERY]
    held = [e for e in examples if e.index % HELD_OUT_EVERY == 0 and e.greedy]
    return train, held


def collate(examples: Sequence[Example], device: torch.device, step: int = 1) -> Batch:
    """Concatenate examples; the row just before an answer token predicts that token.

    With `step`, tokens and rows are padded to its multiples, because oneDNN compiles and keeps a
    kernel for every new shape. The padding is one more sequence, and rows of probability 0, which
    `soft_targets` masks.
    """
    lens = [len(e.inputs) for e in examples]
    rows, start = [], 0
    for example, length in zip(examples, lens, strict=True):
        rows.append(torch.arange(start + len(example.prompt) - 1, start + length))
        start += length
    num_rows = sum(map(len, rows))
    pad, pad_rows = -start % step, -num_rows % step
    return Batch(
        tokens=F.pad(torch.cat([e.inputs for e in examples]), (0, pad)).to(device),
        lens=[*lens, pad] if pad else lens,
        rows=F.pad(torch.cat(rows), (0, pad_rows)).to(device),
        answer=F.pad(torch.cat([e.answer for e in examples]), (0, pad_rows)).to(device),
        top_ids=F.pad(torch.cat([e.top_ids for e in examples]).long(), (0, 0, 0, pad_rows)).to(
            device
        ),
        top_logprobs=F.pad(
            # Converted one by one, because under autocast a CPU cannot concatenate float16.
            torch.cat([e.top_logprobs.float() for e in examples]),
            (0, 0, 0, pad_rows),
            value=float("-inf"),
        ).to(device),
    )


def batches(
    examples: list[Example], batch_tokens: int, rng: random.Random | None
) -> Iterator[list[Example]]:
    """Yield groups of examples with about `batch_tokens` tokens, prompts and answers together.

    They are shuffled if `rng` is given.
    """
    order = list(examples)
    if rng is not None:
        rng.shuffle(order)
    group: list[Example] = []
    size = 0
    for example in order:
        group.append(example)
        size += len(example.prompt) + len(example.answer)
        if size >= batch_tokens:
            yield group
            group, size = [], 0
    if group:
        yield group


def choose_vocabulary(
    examples: list[Example], vocab_size: int, num: int, always: list[int]
) -> Tensor:
    """Return the `num` most likely answer tokens: target ids int64 [num], sorted.

    A token's weight is the sum of the target's probabilities for it, so that close second choices
    count too. The tokens in `always` are always chosen. Ties and unseen tokens go by id, because
    low ids are frequent in a BPE vocabulary.
    """
    weights = torch.zeros(vocab_size, dtype=torch.float64)
    for example in examples:
        mass = example.top_logprobs.double().exp().flatten()
        weights.index_add_(0, example.top_ids.flatten().long(), mass)
    weights[always] += 1e9
    return torch.argsort(weights, descending=True, stable=True)[:num].sort().values


def coverage(examples: list[Example], draft_ids: Tensor, vocab_size: int) -> float:
    """Return the share of answer tokens, 0 to 1, that are in the draft vocabulary."""
    is_known = target_to_draft(draft_ids, vocab_size) >= 0
    answers = torch.cat([example.answer for example in examples])
    return float(is_known[answers].double().mean())


def target_to_draft(draft_ids: Tensor, vocab_size: int) -> Tensor:
    """Return the draft id of each target id, -1 if it has none: int64 [vocab]."""
    table = torch.full((vocab_size,), -1, dtype=torch.int64)
    table[draft_ids] = torch.arange(len(draft_ids))
    return table
