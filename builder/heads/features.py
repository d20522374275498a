"""The target's states over answers that are there already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from builder.distill.data import Example
from builder.distill.evaluate import Conversation
from builder.distill.teacher import Teacher


class InMemory:
    """Features that were computed just now; stands where FeatureRows do."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows = rows

    def load(self) -> torch.Tensor:
        """[inputs, taps, hidden] bf16."""
        return self._rows


def with_features(
    target_dir: Path, items: Sequence[Conversation], taps: tuple[int, ...]
) -> Iterator[tuple[str, Example]]:
    """(column, example) of each conversation with an answer of two tokens or more.

    Nothing is known of the teacher's laws but that its answer is greedy.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    longest = max(len(item.prompt) + len(item.answer) for item in items)
    teacher = Teacher(target_dir, 1, longest, device, taps)
    for item in items:
        if len(item.answer) < 2:
            continue
        inputs = item.prompt + item.answer[:-1]
        rows = teacher.prefill([0], [inputs]).features[0]
        answer = torch.tensor(item.answer)
        nothing = torch.full((len(answer), 1), float("-inf"))
        yield (
            item.column,
            Example(0, torch.tensor(item.prompt), answer, answer[:, None], nothing, InMemory(rows)),
        )
