"""The interfaces between the loop and its engines, and the values that pass between them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specdec.token_ids import TokenIds, TopLogProbs


@dataclass(frozen=True, slots=True)
class Verification:
    """The target's answer to a draft, or one response of a stream without a draft."""

    tokens: tuple[int, ...]
    """Confirmed tokens without the end token: accepted draft tokens, then the target's own."""
    ended: bool
    """Whether the target's next token is the end token."""
    log_probs: tuple[float, ...] = ()
    """The target's log-probability of each of `tokens`; empty unless the request asks for them."""
    top_log_probs: tuple[TopLogProbs, ...] = ()
    """The most likely tokens at the position of each of `tokens`; empty unless asked for."""
    num_accepted: int | None = None
    """Number of accepted draft tokens; None if the engine does not report it: see
    `num_accepted_of`."""
    num_draft_tokens: int | None = None
    """Number of draft tokens that were verified; None means all. The engine may leave out paths of
    a tree that is too large."""
    next_drafts: tuple[int, ...] = ()
    """Draft tokens that the target's head proposes after `tokens`; empty unless it was asked."""
    next_parents: tuple[int, ...] = ()
    """Parents of `next_drafts` if they form a tree, as in `Draft.parents`."""
    drafter: str | None = None
    """Name of the drafter if the engine drafts by itself and says so."""
    accepted_sources: tuple[int, ...] = ()
    """With `drafter`, the number of the drafter that proposed each accepted token."""
    draft_s: float = 0.0
    """With `drafter`, the seconds for which the engine waited for the draft."""
    target_s: float | None = None
    """Seconds that the engine took apart from `draft_s`; None if it does not say."""
    is_followed: bool = False
    """Whether the engine sent another round with it, which comes next."""


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A draft for one round, and the request for the head's next draft."""

    tokens: tuple[int, ...]
    """The draft tokens; in a tree, each comes after its parent."""
    logits: npt.NDArray[np.float32] | None = None
    """Logits [tokens, vocab] from which the tokens were drawn; None if verification does not need
    them, or if the tokens were copied."""
    parents: tuple[int, ...] = ()
    """For a tree, the index in `tokens` of each token's parent, or -1 if it follows the context.
    Empty for a chain."""

    log_probs: tuple[float, ...] = ()
    """The draft model's log-probability of each token; empty unless it was asked for them."""
    num_next: int | None = None
    """Number of draft tokens for the next round that the target's head is to return. With 0 the
    head reads along: it processes the tokens without drafting. With None it does not run."""
    next_depth: int | None = None
    """Depth of the tree of `num_next` tokens; None asks for a chain."""

    def path(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Return the indices of the draft tokens that `tokens` follows, from the root on.

        The path ends at the first token that the draft does not have. Of siblings with the same
        token, the path has the first, and the children of each count as children of all.
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
"""The empty draft, for a plain step."""


class TargetEngine(Protocol):
    """The interface of the target, whose output the client gets.

    Methods raise InvalidRequestError or UnsupportedError if the request is at fault, else
    EngineFailedError.
    """

    def verify(self, context: TokenIds, draft: Draft) -> Verification:
        """Verify `draft` after `context` [n] int32 in one pass; an empty draft is a plain step."""

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        """Generate up to `max_tokens` tokens after `context` [n] int32 without a draft.

        Yield the tokens as they come. Closing the generator stops the engine. An engine that cannot
        stream is called several times.
        """


class DraftEngine(Protocol):
    """The interface of a draft model."""

    def draft(self, context: TokenIds, num_tokens: int) -> Draft:
        """Draft up to `num_tokens` tokens after `context` [n] int32; fewer before an end token.

        Raise InvalidRequestError, UnsupportedError or EngineFailedError, as a target does.
        """


@dataclass(slots=True)
class EngineClock:
    """The sum of the times that an engine itself reports for the calls of one request.

    Reports cost time, so an engine that takes drafts is asked for them only if the request wants
    performance metrics. An `llmapi` engine always reports its times.
    """

    busy_s: float = 0.0
    """Seconds from arrival to last token, summed over the calls."""


@dataclass(slots=True)
class EngineCounts:
    """The counts in the last response of an engine that speculates inside.

    They stay 0 if the answer is stopped before that response.
    """

    num_draft_tokens: int = 0
    """Number of draft tokens that the engine verified."""
    num_accepted_tokens: int = 0
    """Number of draft tokens that the engine accepted."""


def num_accepted_of(draft: Draft, verification: Verification) -> int:
    """Return the number of accepted draft tokens.

    If the engine does not report it, count the tokens that follow the draft. For a chain in the
    modes `exact` and `rejection` this is exact: the target's own token always differs from the
    draft token that it replaces.
    """
    if verification.num_accepted is not None:
        return verification.num_accepted
    return len(draft.path(verification.tokens))


def num_draft_tokens_of(draft: Draft, verification: Verification) -> int:
    """Return the number of draft tokens that were verified."""
    num_verified = verification.num_draft_tokens
    return len(draft.tokens) if num_verified is None else num_verified
