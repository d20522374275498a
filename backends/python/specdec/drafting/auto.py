"""The plain rule for `drafter = auto`: what costs nothing first, the draft model if it pays."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.control.gain import GainMeter
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class AutoDrafter:
    """The first free drafter with an offer, else the draft engine while its gain is above 1."""

    def __init__(
        self, free: Sequence[Drafter], engine: Drafter | None, gain: GainMeter | None
    ) -> None:
        self._free = free
        self._engine = engine
        self._gain = gain
        self._is_first_round = True

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        for drafter in self._free:
            found = drafter.propose(context, max_tokens)
            if found.tokens:
                return found
        if self._engine is None or self._gain is None or not self._gain.should_draft():
            return NO_PROPOSAL
        return self._engine.propose(context, max_tokens)

    def observe(self, confirmed: Round) -> None:
        for drafter in self._free:
            drafter.observe(confirmed)
        if self._engine is not None:
            self._engine.observe(confirmed)
        # The first round also pays for the prompt, in both engines.
        if self._gain is not None and not self._is_first_round:
            self._gain.observe(confirmed)
        self._is_first_round = False
