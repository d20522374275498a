"""The interface of a drafting head: its input from a pass, and its proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from specdec.acceptance.sampling import Draw
from specdec.token_ids import TokenIds
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache
from specdec.torch_engine.sampler import NOT_DRAWN
from specdec.torch_engine.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The confirmed rows that a pass has added to one sequence."""

    task: Task
    sequence: CachedSequence
    start: int
    """Position of the first row."""
    states: Tensor
    """[rows, taps, hidden] float32: the inputs of the tapped layers."""
    last: Tensor | None
    """[hidden] float32: the last row after the final norm; None if the prompt continues."""
    context: TokenIds
    """[start + rows + 1 or more] int32: the sequence's tokens and the one after the last row."""
    num_draft_tokens: int
    """Largest number of draft tokens to propose after the last row; with 0 the head only reads."""
    max_depth: int | None = None
    """Largest number of draft tokens on one path of a tree; None for a chain."""

    @property
    def is_tree(self) -> bool:
        return self.max_depth is not None

    @property
    def depth(self) -> int:
        """Largest number of draft tokens that may follow one another."""
        return min(self.num_draft_tokens, self.max_depth or self.num_draft_tokens)

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.start + len(self.states)

    @property
    def tokens(self) -> TokenIds:
        """[rows] int32: the token after each row."""
        return self.context[self.start + 1 : self.end + 1]

    def draw(self, draft_tokens: list[int]) -> Draw:
        """Return the target's draw of the token that follows the draft tokens `draft_tokens`."""
        task = self.task
        context = self.context[: self.end + 1]
        if draft_tokens:
            context = np.concatenate((context, np.asarray(draft_tokens, dtype=np.int32)))
        return Draw(
            task.params,
            context,
            task.num_prompt_tokens,
            task.end_id,
            banned=task.banned,
            constraint=task.constraint,
        )


class HeadProposal(NamedTuple):
    """A head's proposal: draft tokens, and their parents if they form a tree.

    `parents` has the form of Task.draft_parents; it is empty for a chain.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()


NO_HEAD_PROPOSAL = HeadProposal()


class DraftingHead(Protocol):
    """A drafting head of any kind; used by the engine's thread only."""

    taps: tuple[int, ...]
    """The target's layers whose inputs the head reads, ascending."""

    def read(self, readings: list[Reading], cache: KVCache) -> list[HeadProposal]:
        """Read the rows; return for each reading a proposal of up to `num_draft_tokens` tokens."""


def has_ended(reading: Reading, draft_tokens: list[int]) -> bool:
    """Say whether a head drafts no more: after the end token, or if no token could be drawn."""
    return bool(draft_tokens) and draft_tokens[-1] in {reading.task.end_id, NOT_DRAWN.token}


def offered(reading: Reading, draft_tokens: list[int]) -> HeadProposal:
    """Return a chain as a proposal, without the token that ended it."""
    return HeadProposal(
        tuple(draft_tokens[:-1] if has_ended(reading, draft_tokens) else draft_tokens)
    )
