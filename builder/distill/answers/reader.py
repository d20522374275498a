"""Reading answers with the target again, for probabilities and states that were not kept.

At a hidden size of 576, sixteen candidates and four states take a thousand times the bytes of the
token. A GPU computes them again in less time than a disk takes to load them. A CPU does not, so it
keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig

from specdec.builder.distill.answers.target_runner import TargetRunner, top_logprobs
from specdec.builder.distill.data import Example

NUM_TOP = 16
"""Tokens whose probabilities are given at each position."""
ROWS = 4096
"""Rows whose logits over the whole vocabulary are held at once."""


@dataclass(frozen=True)
class InMemory:
    """Features that were just computed, in place of FeatureRows."""

    rows: Tensor

    def load(self) -> Tensor:
        """Return the states: [inputs, taps, hidden] bf16."""
        return self.rows


class Reader:
    """The target as a reader: adds its probabilities, and its states at `taps`, to examples."""

    def __init__(self, target_dir: Path, device: torch.device, taps: tuple[int, ...] = ()) -> None:
        longest = int(AutoConfig.from_pretrained(target_dir).max_position_embeddings)
        self.runner = TargetRunner(target_dir, 0, longest, device, taps)

    @torch.no_grad()
    def __call__(self, group: Sequence[Example]) -> list[Example]:
        """Return the same examples with `top_ids`, `top_logprobs` and `features`."""
        device = self.runner.device
        lens = [len(e.inputs) for e in group]
        tokens = torch.cat([e.inputs for e in group]).to(device)
        final, tapped = self.runner.read(tokens, lens)
        ends = torch.tensor(lens).cumsum(0)
        rows = torch.cat(
            [
                torch.arange(end - len(e.answer), end)
                for e, end in zip(group, ends.tolist(), strict=True)
            ]
        ).to(device)
        parts = [
            top_logprobs(self.runner.model.head(some), NUM_TOP) for some in final[rows].split(ROWS)
        ]
        num_answer = [len(e.answer) for e in group]
        logprobs = torch.cat([values for values, _ in parts]).split(num_answer)
        ids = torch.cat([some for _, some in parts]).split(num_answer)
        states = tapped.split(lens)
        return [
            replace(
                e,
                top_ids=ids[i],
                top_logprobs=logprobs[i],
                features=InMemory(states[i]) if self.runner.taps else None,
            )
            for i, e in enumerate(group)
        ]


def have_probabilities(examples: Sequence[Example]) -> bool:
    """Return whether the target's probabilities were kept with all examples."""
    return all(e.top_ids.shape[1] > 1 for e in examples)
