"""What the loop needs of an engine; everything else about engines is behind this."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Verification:
    """What the target said of a draft: accepted drafts and one token of its own."""

    tokens: tuple[int, ...]
    """Confirmed tokens, the end token left out."""
    ended: bool
    """The target's next token is the end token."""
    log_probs: tuple[float, ...] = ()
    """The target's, of `tokens`, where the request wants them."""
    num_accepted: int | None = None
    """Of the draft, where the engine says so; else it follows from the tokens."""
    num_drafted: int | None = None
    """How much of the draft was looked at, where the engine says so; else all of it. Of a tree that
    does not fit, some paths are left out."""
    next_drafts: tuple[int, ...] = ()
    """What the target's drafting head guesses behind the tokens."""
    next_parents: tuple[int, ...] = ()
    """For a tree of them: see Draft."""


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """What a draft engine guesses."""

    tokens: tuple[int, ...]
    logits: npt.NDArray[np.float32] | None = None
    """[tokens, vocab]: what they were drawn from, where the verification needs it."""
    parents: tuple[int, ...] = ()
    """For a tree: the place in `tokens` that each follows, -1 the context. A chain has none."""

    log_probs: tuple[float, ...] = ()
    """The draft's own, of its tokens, where they are asked for."""
    num_next: int | None = None
    """Guesses that the target's drafting head is asked for with the answer; 0 lets it read along,
    None leaves it out."""
    next_depth: int | None = None
    """Guesses of a tree of num_next that may follow each other; None asks for a chain."""

    def path(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The nodes that `tokens` runs through from the root, as far as it goes.

        Of siblings that are the same token the first counts; what follows any of them follows all.
        """
        parents = self.parents or tuple(range(-1, len(self.tokens) - 1))
        path: list[int] = []
        reached = {-1}
        for token in tokens:
            nodes = [
                node
                for node, parent in enumerate(parents)
                if parent in reached and self.tokens[node] == token
            ]
            if not nodes:
                break
            path.append(nodes[0])
            reached = set(nodes)
        return tuple(path)


NO_DRAFT = Draft(())


class TargetEngine(Protocol):
    """The model whose output the client gets. Errors are raised as EngineFailedError."""

    def verify(self, context: TokenIds, draft: Draft) -> Verification:
        """Checks `draft` behind `context` [n] int32 in one pass; an empty draft is a plain step."""

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        """Generates without a draft to its end, in one call where it can; closing stops it."""


class DraftEngine(Protocol):
    """A small model that guesses."""

    def draft(self, context: TokenIds, num_tokens: int) -> Draft:
        """Up to `num_tokens` guesses behind `context` [n] int32; fewer where it sees the end."""


@dataclass(slots=True)
class EngineClock:
    """Seconds that an engine itself spent on one request's calls, from arrival to last token.

    Counted only where the request asks for performance metrics, because asking costs time.
    """

    busy_s: float = 0.0


@dataclass(slots=True)
class EngineCounts:
    """What an engine that speculates by itself says of one request with its last response.

    It says nothing of an answer that was cut short from outside.
    """

    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


def num_accepted_of(draft: Draft, verification: Verification) -> int:
    """How many drafts stand: as the engine says, or as far as the tokens follow the draft.

    Engines of the `tensorrtllm` contract return tokens alone; by equality and by rejection the
    correction always differs from the draft token that it replaces, so the count is exact.
    """
    if verification.num_accepted is not None:
        return verification.num_accepted
    return len(draft.path(verification.tokens))


def num_drafted_of(draft: Draft, verification: Verification) -> int:
    """How many drafts were verified."""
    said = verification.num_drafted
    return len(draft.tokens) if said is None else said
