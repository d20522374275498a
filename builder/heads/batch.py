"""Batches of examples with the target's states, for training a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec.builder.distill.data import Example
from specdec.builder.errors import BuildError


@dataclass(frozen=True)
class HeadBatch:
    """The rows of all sequences, one after another, and the rows at which the head drafts.

    Those are called anchors. An anchor is the row just before an answer token a; the head knows a,
    and its draft tokens follow a.
    """

    states: Tensor
    """[rows, taps, hidden] bf16: the target's states."""
    tokens: Tensor
    """int64 [rows + padding]: the token after each row."""
    lens: list[int]
    """Number of rows of each sequence."""
    anchors: Tensor
    """int64 [anchors]: the rows that are anchors, ascending."""
    anchors_of: list[int]
    """Number of anchors of each sequence."""
    answer_rows: Tensor
    """int64 [steps, anchors]: the row, in the tensors below, of the token that each step drafts."""
    answer: Tensor
    """int64 [answer rows]: the answer tokens. The last row stands for no token: it has token -1 and
    probability 0."""
    top_ids: Tensor
    """int64 [answer rows, num_top]: the target's most likely tokens."""
    top_logprobs: Tensor
    """float32 [answer rows, num_top]: their log-probabilities."""


def collate(
    examples: Sequence[Example], device: torch.device, num_steps: int, step: int = 1
) -> HeadBatch:
    """Return a batch of these examples for `num_steps` drafting steps.

    With `step`, rows and anchors are padded to its multiples, as in `builder/distill/data.py`.
    Raises BuildError for examples without features.
    """
    rows = _rows_of(examples, num_steps)
    rows.pad(step)
    num_top, device_of_top = examples[0].top_ids.shape[1], examples[0].top_ids.device
    no_ids = torch.zeros(1, num_top, dtype=torch.int64, device=device_of_top)
    top_ids = [*(e.top_ids.long() for e in examples), no_ids]
    nothing = torch.full((1, num_top), float("-inf"), device=device_of_top)
    # The tokens that the last rows' steps read.
    tokens = [*rows.tokens, torch.zeros(num_steps, dtype=torch.int64)]
    return HeadBatch(
        states=torch.cat(rows.features).to(device),
        tokens=torch.cat(tokens).to(device),
        lens=rows.lens,
        anchors=torch.cat(rows.anchors).to(device),
        anchors_of=rows.anchors_of,
        answer_rows=torch.cat(rows.answer_rows, dim=1).to(device),
        answer=torch.cat([*(e.answer for e in examples), torch.tensor([-1])]).to(device),
        top_ids=torch.cat(top_ids).to(device),
        top_logprobs=torch.cat([*(e.top_logprobs.float() for e in examples), nothing]).to(device),
    )


@dataclass
class _Rows:
    """The parts of a batch that depend on rows; HeadBatch describes the joined ones."""

    no_token: int
    """Number of the answer row that stands for no token."""
    features: list[Tensor] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)
    lens: list[int] = field(default_factory=list)
    anchors: list[Tensor] = field(default_factory=list)
    anchors_of: list[int] = field(default_factory=list)
    answer_rows: list[Tensor] = field(default_factory=list)

    def pad(self, step: int) -> None:
        """Add rows and anchors without a token, up to multiples of `step`."""
        num_rows = -sum(self.lens) % step
        if num_rows:
            self.features.append(self.features[0].new_zeros(num_rows, *self.features[0].shape[1:]))
            self.tokens.append(torch.zeros(num_rows, dtype=torch.int64))
            self.lens.append(num_rows)
            self.anchors_of.append(0)
        num_anchors = -sum(self.anchors_of) % step
        self.anchors.append(torch.full((num_anchors,), sum(self.lens) - 1))
        self.anchors_of[-1] += num_anchors
        num_steps = len(self.answer_rows[0])
        self.answer_rows.append(torch.full((num_steps, num_anchors), self.no_token))


def _rows_of(examples: Sequence[Example], num_steps: int) -> _Rows:
    """Return the rows of the examples. Raises BuildError for examples without features."""
    rows = _Rows(no_token=sum(len(e.answer) for e in examples))
    start, first_answer = 0, 0
    for example in examples:
        if example.features is None:
            raise BuildError(
                "these answers were written without the target's hidden states; use another --work"
            )
        length, num_answer = len(example.inputs), len(example.answer)
        own = torch.arange(num_answer - 1)
        drafted = own[None] + 1 + torch.arange(num_steps)[:, None]
        rows.features.append(example.features.load())
        rows.tokens.append(torch.cat((example.prompt[1:], example.answer)))
        rows.lens.append(length)
        rows.anchors.append(start + len(example.prompt) - 1 + own)
        rows.anchors_of.append(num_answer - 1)
        rows.answer_rows.append(
            torch.where(drafted < num_answer, drafted + first_answer, rows.no_token)
        )
        start, first_answer = start + length, first_answer + num_answer
    return rows
