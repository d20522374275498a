"""The target's hidden states over answers that were written before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from specdec.builder.distill.answers.reader import Reader
from specdec.builder.distill.arithmetic import training_device
from specdec.builder.distill.data import Example
from specdec.builder.distill.evaluate import Conversation


def with_features(
    target_dir: Path, items: Sequence[Conversation], taps: tuple[int, ...]
) -> Iterator[tuple[str, Example]]:
    """Yield (column, example) of each conversation whose answer has two tokens or more."""
    items = [item for item in items if len(item.answer) > 1]
    reader = Reader(target_dir, training_device(), taps)
    for item in items:
        nothing = torch.empty(len(item.answer), 0)
        bare = Example(0, torch.tensor(item.prompt), torch.tensor(item.answer), nothing, nothing)
        yield item.column, reader([bare])[0]
