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


class TargetEngine(Protocol):
    """The model whose output the client gets. Errors are raised as EngineFailedError."""

    def verify(self, context: TokenIds, draft: tuple[int, ...]) -> Verification:
        """Checks `draft` behind `context` [n] int32 in one pass; an empty draft is a plain step."""

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        """Generates without a draft in ONE call, to its end; closing the iterator stops it."""


class DraftEngine(Protocol):
    """A small model that guesses."""

    def draft(self, context: TokenIds, num_tokens: int) -> tuple[int, ...]:
        """Up to `num_tokens` guesses behind `context` [n] int32; fewer where it sees the end."""


@dataclass(slots=True)
class EngineClock:
    """Seconds that an engine itself spent on one request's calls, from arrival to last token.

    Counted only where the request asks for performance metrics, because asking costs time.
    """

    busy_s: float = 0.0


def accepted_of(draft: tuple[int, ...], tokens: tuple[int, ...]) -> int:
    """How many drafts stand in a verified result: its longest common beginning with the draft.

    Engines of the `tensorrtllm` contract return tokens alone; the correction always differs from
    the draft token that it replaces, so the count is exact.
    """
    num_accepted = 0
    for drafted, confirmed in zip(draft, tokens, strict=False):
        if drafted != confirmed:
            break
        num_accepted += 1
    return num_accepted
