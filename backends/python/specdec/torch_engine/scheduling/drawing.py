"""The draws of a pass: the target's tokens after the asked rows of all tasks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.torch_engine.sampler import DrawnToken, Sampler
from specdec.torch_engine.scheduling.failures import PassFailures
from specdec.torch_engine.scheduling.selection import Chunk


def draw(
    sampler: Sampler, hidden: Tensor, chunks: Sequence[Chunk], failures: PassFailures
) -> list[list[DrawnToken]]:
    """Draw after the asked rows of each task; return the drawn tokens of each.

    `hidden` holds the asked rows of all chunks in order. If drawing for all together fails, each
    task's tokens are drawn separately, to find the one at fault. A row's result does not depend on
    other rows, so the other tasks get the same tokens.
    """
    draws = [running.draws(segment.num_logits) for running, segment in chunks]
    try:
        return sampler.choose(hidden, draws)
    except Exception:  # noqa: BLE001 - raised again below, for its task
        drawn: list[list[DrawnToken]] = []
        start = 0
        for (running, _), own in zip(chunks, draws, strict=True):
            rows = hidden[start : start + len(own)]
            start += len(own)
            drawn.append([])
            with failures.catching(running):
                rows = torch.cat((rows, rows)) if len(own) == 1 else rows
                drawn[-1:] = sampler.choose(rows, [own])
        return drawn
