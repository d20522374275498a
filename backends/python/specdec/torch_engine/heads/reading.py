"""What a head is given of a pass, and what every kind of head does with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from specdec.acceptance.sampling import Draw
from specdec.torch_engine.kv_cache import CachedSequence, KVCache, TokenIds
from specdec.torch_engine.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Rows that a pass has added to one sequence and that stand."""

    task: Task
    sequence: CachedSequence
    start: int
    """Position of the first row."""
    states: Tensor
    """[rows, taps, hidden] float32."""
    last: Tensor | None
    """[hidden] float32: the last row behind the final norm; None in mid-prompt."""
    text: TokenIds
    """[start + rows + 1 or more] the sequence's tokens, the one behind the last row included."""
    num_guesses: int
    """Wanted behind that; 0 to read only."""
    max_depth: int | None = None
    """Of a tree of that many guesses; None for a chain."""

    @property
    def is_tree(self) -> bool:
        return self.max_depth is not None

    @property
    def depth(self) -> int:
        """How many guesses may follow each other."""
        return min(self.num_guesses, self.max_depth or self.num_guesses)

    @property
    def end(self) -> int:
        """Position behind the last row."""
        return self.start + len(self.states)

    @property
    def tokens(self) -> TokenIds:
        """[rows] int32: the token behind each row."""
        return self.text[self.start + 1 : self.end + 1]

    def draw(self, guesses: list[int]) -> Draw:
        """How the token behind `guesses` is drawn: as the target would draw it there."""
        task = self.task
        text = self.text[: self.end + 1]
        if guesses:
            text = np.concatenate((text, np.asarray(guesses, dtype=np.int32)))
        return Draw(task.params, text, task.num_prompt_tokens, task.end_id, banned=task.banned)


class Guesses(NamedTuple):
    """What may follow; `parents` as in Task.draft_parents, a chain has none."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()


NO_GUESSES = Guesses()


class Head(Protocol):
    """A head of any kind; driven by the engine's thread."""

    taps: tuple[int, ...]
    """The target's layers whose inputs it reads, ascending."""

    def read(self, readings: list[Reading], cache: KVCache) -> list[Guesses]:
        """Reads the rows and guesses what follows: up to num_guesses tokens for each."""


def has_ended(reading: Reading, guesses: list[int]) -> bool:
    """Nothing is guessed behind the end token, which is not offered either."""
    return bool(guesses) and guesses[-1] == reading.task.end_id


def offered(reading: Reading, guesses: list[int]) -> Guesses:
    """A chain without an end token."""
    return Guesses(tuple(guesses[:-1] if has_ended(reading, guesses) else guesses))
