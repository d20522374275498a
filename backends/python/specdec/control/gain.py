"""Whether the draft engine pays, by measured times and measured acceptance."""

from __future__ import annotations

import threading

from specdec.rounds import Round

MIN_ROUNDS = 16
"""Measured rounds of each kind before the figures are believed; until then it drafts."""

PLAIN_EVERY = 64
"""One round in so many runs without a draft, to keep the plain step's time measured."""

RETRY_EVERY = 32
"""While drafting does not pay, one opportunity in so many is taken all the same."""

WEIGHT = 1 / 64
"""Of the newest round in the moving averages, once MIN_ROUNDS are seen."""


class _Average:
    """An arithmetic mean at first, an exponential one later."""

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0

    def add(self, sample: float) -> None:
        self.count += 1
        self.value += (sample - self.value) * max(1 / self.count, WEIGHT)


class GainMeter:
    """Compares rounds of one drafter with plain steps of the target, over all requests.

    gain = (mean tokens of a drafted round / its mean seconds) × mean seconds of a plain step.
    Thread-safe.
    """

    def __init__(self, drafter: str) -> None:
        self._drafter = drafter
        self._lock = threading.Lock()
        self._tokens = _Average()
        self._round_s = _Average()
        self._plain_s = _Average()
        self._num_asked = 0

    @property
    def gain(self) -> float | None:
        """The estimate, or None while too little is measured."""
        if min(self._round_s.count, self._plain_s.count) < MIN_ROUNDS:
            return None
        return self._tokens.value / self._round_s.value * self._plain_s.value

    def should_draft(self) -> bool:
        """The decision for one round, probing the other choice now and then."""
        with self._lock:
            self._num_asked += 1
            gain = self.gain
            if gain is None:
                # Both sides are needed to compare: drafts mostly, a plain step in between.
                enough_drafts = self._round_s.count > self._plain_s.count
                return not (enough_drafts and self._num_asked % 2 == 0)
            if gain > 1.0:
                return self._num_asked % PLAIN_EVERY != 0
            return self._num_asked % RETRY_EVERY == 0

    def observe(self, confirmed: Round) -> None:
        """Learns from a round, unless another drafter made it."""
        with self._lock:
            if confirmed.num_drafted == 0:
                self._plain_s.add(confirmed.target_s)
            elif confirmed.drafter == self._drafter:
                self._tokens.add(len(confirmed.tokens))
                self._round_s.add(confirmed.draft_s + confirmed.target_s)
