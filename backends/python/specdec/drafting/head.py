"""A drafting head of the target: its guesses come with the target's last answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdec.control.gain import GainMeter
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round

TRIAL_ROUNDS = 16
"""A head that is tried again gets so many rounds of a request."""

TREE_DEPTH = 5
"""Guesses of a head's tree that may follow each other, at most."""


class HeadDrafter:
    """Offers what came with the last round, and asks for what is to come with this one."""

    def __init__(self, name: str, source: int, num_tokens: int, *, is_tree: bool = False) -> None:
        """`is_tree`: the `num_tokens` guesses are a tree instead of a chain."""
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._depth = min(TREE_DEPTH, num_tokens) if is_tree else num_tokens
        self._is_tree = is_tree
        self._guesses = NO_PROPOSAL
        self._is_first_round = True

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:  # noqa: ARG002
        # Behind the guesses and the token that follows them; the last one is never worth guessing.
        # The first token does not wait for guesses.
        depth = 0 if self._is_first_round else min(self._depth, max(0, max_tokens - 1))
        offer = self._cut(max_tokens)
        if not self._is_tree:
            return replace(offer, num_next=depth)
        return replace(offer, num_next=self._num_tokens if depth else 0, next_depth=depth or None)

    def observe(self, confirmed: Round) -> None:
        self._is_first_round = False
        tokens, parents = confirmed.next_drafts, confirmed.next_parents
        name = self._name if tokens else None
        self._guesses = Proposal(tokens, name, self._source, parents=parents)

    def _cut(self, max_depth: int) -> Proposal:
        """The guesses, which come depth by depth, as deep as they may be."""
        guesses = self._guesses
        num_kept = sum(depth <= max_depth for depth in guesses.depths)
        parents = guesses.parents[:num_kept]
        return replace(guesses, tokens=guesses.tokens[:num_kept], parents=parents)


class HeadOrCopy:
    """The head's guesses, or a copy that goes on for longer; the head reads along with either.

    Where the head does not pay it is left out for the rest of a request: what it has not read it
    would have to read first.
    """

    def __init__(self, copying: Sequence[Drafter], head: HeadDrafter, gain: GainMeter) -> None:
        """`copying`: drafters that cost nothing, the likeliest to be right first."""
        self._copying = copying
        self._head = head
        self._gain = gain
        self._is_on = True
        self._num_rounds = 0
        self._asked: int | None = None

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        own = NO_PROPOSAL
        if self._is_on:
            own = self._head.propose(context, max_tokens)
            num_next = self._num_next(own.num_next)
            own = replace(own, num_next=num_next, next_depth=own.next_depth if num_next else None)
        self._asked = own.num_next
        for drafter in self._copying:
            found = drafter.propose(context, max_tokens)
            if max(found.depths, default=0) > max(own.depths, default=0):
                return replace(found, num_next=own.num_next, next_depth=own.next_depth)
        return own

    def observe(self, confirmed: Round) -> None:
        self._head.observe(confirmed)
        for drafter in self._copying:
            drafter.observe(confirmed)
        # A round pays for the next one's guesses: those before and behind a change say nothing,
        # nor does the first, which pays for the prompt.
        self._num_rounds += 1
        if self._num_rounds > 1 and bool(confirmed.num_drafted) == bool(self._asked):
            self._gain.observe(confirmed)

    def _num_next(self, wanted: int | None) -> int | None:
        """How many guesses are asked for; 0 for a plain round to compare with."""
        # Two rounds at a time: the first of them still lives on what was asked before.
        if self._num_rounds and self._num_rounds % 2 == 0:
            return wanted if self._asked else 0
        if self._gain.should_draft():
            return wanted
        is_paying = self._gain.gain is None or self._gain.gain > 1
        if is_paying or 0 < self._num_rounds < TRIAL_ROUNDS:
            return 0 if is_paying else wanted
        self._is_on = False
        return None
