"""Batches of examples with the target's states, for training a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    features, tokens, lens, anchors, counts = [], [], [], [], []
    answer_rows: list[Tensor] = []
    start, first_answer = 0, 0
    no_token = sum(len(e.answer) for e in examples)  # the last answer row
    for example in examples:
        if example.features is None:
            raise BuildError(
                "these answers were written without the target's hidden states; use another --work"
            )
        length, num_answer = len(example.inputs), len(example.answer)
        features.append(example.features.load())
        tokens.append(torch.cat((example.prompt[1:], example.answer)))
        lens.append(length)
        own = torch.arange(num_answer - 1)
        anchors.append(start + len(example.prompt) - 1 + own)
        counts.append(num_answer - 1)
        drafted = own[None] + 1 + torch.arange(num_steps)[:, None]
        answer_rows.append(torch.where(drafted < num_answer, drafted + first_answer, no_token))
        start, first_answer = start + length, first_answer + num_answer
    pad = -start % step
    if pad:
        features.append(features[0].new_zeros(pad, *features[0].shape[1:]))
        tokens.append(torch.zeros(pad, dtype=torch.int64))
        lens.append(pad)
        counts.append(0)
    num_anchors = sum(counts)
    pad_anchors = -num_anchors % step
    anchors.append(torch.full((pad_anchors,), sum(lens) - 1))
    counts[-1] += pad_anchors
    answer_rows.append(torch.full((num_steps, pad_anchors), no_token))
    tokens.append(torch.zeros(num_steps, dtype=torch.int64))
    num_top = examples[0].top_ids.shape[1]
    device_of_top = examples[0].top_ids.device
    no_ids = torch.zeros(1, num_top, dtype=torch.int64, device=device_of_top)
    top_ids = [*(e.top_ids.long() for e in examples), no_ids]
    nothing = torch.full((1, num_top), float("-inf"), device=device_of_top)
    return HeadBatch(
        states=torch.cat(features).to(device),
        tokens=torch.cat(tokens).to(device),
        lens=lens,
        anchors=torch.cat(anchors).to(device),
        anchors_of=counts,
        answer_rows=torch.cat(answer_rows, dim=1).to(device),
        answer=torch.cat([*(e.answer for e in examples), torch.tensor([-1])]).to(device),
        top_ids=torch.cat(top_ids).to(device),
        top_logprobs=torch.cat([*(e.top_logprobs.float() for e in examples), nothing]).to(device),
    )
