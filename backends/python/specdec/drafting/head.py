"""A drafting head of the target: its guesses come with the target's last answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdec.drafting.protocol import Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class HeadDrafter:
    """Offers what came with the last round, and asks for what is to come with this one."""

    def __init__(self, name: str, source: int, num_tokens: int) -> None:
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._guesses: tuple[int, ...] = ()

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:  # noqa: ARG002
        tokens = self._guesses[:max_tokens]
        # Behind the guesses and the token that follows them; the last one is never worth guessing.
        num_next = min(self._num_tokens, max(0, max_tokens - 1))
        name = self._name if tokens else None
        return Proposal(tokens, name, self._source, num_next=num_next)

    def observe(self, confirmed: Round) -> None:
        self._guesses = confirmed.next_drafts


class HeadOrCopy:
    """The head's guesses, or a copy that goes on for longer; the head reads along with either."""

    def __init__(self, copying: Sequence[Drafter], head: HeadDrafter) -> None:
        """`copying`: drafters that cost nothing, the likeliest to be right first."""
        self._copying = copying
        self._head = head

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        own = self._head.propose(context, max_tokens)
        for drafter in self._copying:
            found = drafter.propose(context, max_tokens)
            if len(found.tokens) > len(own.tokens):
                return replace(found, num_next=own.num_next)
        return own

    def observe(self, confirmed: Round) -> None:
        self._head.observe(confirmed)
        for drafter in self._copying:
            drafter.observe(confirmed)
