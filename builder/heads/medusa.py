"""Medusa (Cai et al. 2024): heads on the target's last state, one for each place ahead.

Head i of a state at token t guesses token t + 2 + i. Each is a stack of residual blocks, and the
target's own output rows behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from builder.heads.batch import HeadBatch
from builder.heads.target import target_ends

LAST = -1
"""The place among the taps of what comes out of the final norm."""


class ResBlock(nn.Module):
    """x + silu(linear(x)); begins as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, hidden] → the same."""
        out: Tensor = x + F.silu(self.linear(x))
        return out


class Medusa(nn.Module):
    """`heads.{head}.{layer}.linear`; the output rows are shared, and frozen unless trained."""

    draft_ids: Tensor

    def __init__(
        self, rows: Tensor, draft_ids: Tensor, num_heads: int, num_layers: int, train_head: bool
    ) -> None:
        """`rows` [draft vocab, hidden]: the target's output rows of draft_ids."""
        super().__init__()
        width = rows.shape[1]
        self.num_heads, self.num_layers = num_heads, num_layers
        self.heads = nn.ModuleList(
            nn.Sequential(*(ResBlock(width) for _ in range(num_layers))) for _ in range(num_heads)
        )
        self.lm_head = nn.Linear(width, len(rows), bias=False)
        self.register_buffer("draft_ids", draft_ids, persistent=False)
        with torch.no_grad():
            self.lm_head.weight.copy_(rows)
        self.lm_head.weight.requires_grad_(train_head)

    def steps(self, batch: HeadBatch, num_steps: int) -> Iterator[Tensor]:
        """Logits [anchors, draft vocab] of each step for which there is a head."""
        state = batch.states[batch.anchors, LAST].float()
        for number in range(min(num_steps, self.num_heads)):
            logits: Tensor = self.lm_head(self.heads[number](state))
            yield logits


def start(
    target_dir: Path, draft_ids: Tensor, num_heads: int, num_layers: int, train_head: bool
) -> Medusa:
    """Heads that begin as the target's own guess for the token before theirs."""
    rows = target_ends(target_dir)[1][draft_ids]
    return Medusa(rows, draft_ids, num_heads, num_layers, train_head)
