"""Medusa (Cai et al. 2024): heads on the target's last state, one for each position ahead.

Head i reads the state at token t and drafts token t + 2 + i. Each head is a stack of residual
blocks, followed by output rows that start as the target's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec.builder.distill.target import embedding_and_output_rows
from specdec.builder.heads.batch import HeadBatch

LAST = -1
"""Index among the taps of the final norm's output."""


class ResBlock(nn.Module):
    """The block x + silu(linear(x)), which begins as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return [rows, hidden] for x [rows, hidden]."""
        out: Tensor = x + F.silu(self.linear(x))
        return out


class Medusa(nn.Module):
    """Medusa heads in training, with parameters `heads.{head}.{layer}.linear`.

    All heads share the output rows, which are frozen unless they are trained.
    """

    draft_ids: Tensor

    def __init__(
        self, rows: Tensor, draft_ids: Tensor, num_heads: int, num_layers: int, train_head: bool
    ) -> None:
        """Make heads whose output rows start as `rows` [draft vocab, hidden], the target's."""
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
        """Yield logits [anchors, draft vocab] of each step for which there is a head."""
        state = batch.states[batch.anchors, LAST].float()
        for number in range(min(num_steps, self.num_heads)):
            logits: Tensor = self.lm_head(self.heads[number](state))
            yield logits


def start(
    target_dir: Path, draft_ids: Tensor, num_heads: int, num_layers: int, train_head: bool
) -> Medusa:
    """Return heads that all begin as the target's own prediction of token t + 1.

    They are trained to draft the tokens after that one.
    """
    rows = embedding_and_output_rows(target_dir)[1][draft_ids]
    return Medusa(rows, draft_ids, num_heads, num_layers, train_head)
