"""The trial of a refreshed draft: compare its acceptance on live requests with the old one's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from specdec.builder.errors import BuildError
from specdec.builder.refresh.triton import Counters

POLL_S = 0.5
MIN_ROUNDS = 32
"""Fewest rounds, of the new and the old draft each, to call the new one worse."""
CLEARLY = 3.0
"""Standard errors by which a draft must be worse to end its trial early."""
MAX_FAILURES = 5
"""Failed calls that are always allowed; beyond that, one call in ten may fail."""
MAX_UNREADABLE_S = 60.0
"""Seconds without a readable metrics page after which the draft is rolled back."""


class Verdict(Enum):
    """The result of a trial: KEEP keeps the new draft, the others take it back.

    The values are texts for people.
    """

    KEEP = "kept"
    WORSE = "fewer of its draft tokens are accepted than before"
    FAILING = "its calls fail"
    UNREADABLE = "the metrics page could not be read"


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """The length of a trial and the loss it allows.

    Raises BuildError for fewer rounds than MIN_ROUNDS or a `max_drop` outside [0, 1).
    """

    num_rounds: int = 1000
    """Rounds of the new draft after which the trial ends."""
    max_minutes: float = 30.0
    """Minutes after which the trial ends, however many rounds there were."""
    max_drop: float = 0.1
    """Share of the old draft's acceptance rate that may be lost."""

    def __post_init__(self) -> None:
        if self.num_rounds < MIN_ROUNDS:
            raise BuildError(f"a trial needs at least {MIN_ROUNDS} rounds; given {self.num_rounds}")
        if not 0.0 <= self.max_drop < 1.0:
            raise BuildError(f"the allowed drop is at least 0 and below 1; given {self.max_drop:g}")


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial that has ended."""

    verdict: Verdict
    before: Counters
    """Counts of the old draft."""
    during: Counters
    """Counts of the new draft in the trial."""
    seconds: float
    """Seconds that the trial took."""

    def __str__(self) -> str:
        seen = (
            f"{self.during.num_rounds:.0f} rounds, {self.during.num_requests:.0f} requests, "
            f"{self.seconds:.0f} s: accepted / drafted {self.during.acceptance_rate:.3f}, "
            f"before {self.before.acceptance_rate:.3f}"
        )
        num_seen = min(self.during.num_rounds, self.before.num_rounds)
        if self.verdict is Verdict.KEEP and num_seen < MIN_ROUNDS:
            return f"{seen}: too few to compare; the held-out answers decide"
        return f"{seen}: {self.verdict.value}"


def judge(
    before: Counters, during: Counters, settings: TrialSettings, *, is_over: bool
) -> Verdict | None:
    """Return the verdict on the counts so far, or None if the trial must go on.

    `is_over` ends the trial in any case. With too few rounds to compare, the draft is then kept.
    Draft tokens of one round depend on each other, so the standard error counts each round once.
    """
    tries = during.num_rounds + during.num_failures
    if during.num_failures > max(MAX_FAILURES, tries / 10):
        return Verdict.FAILING
    if during.num_rounds >= MIN_ROUNDS and before.num_rounds >= MIN_ROUNDS:
        rate, old = during.acceptance_rate, before.acceptance_rate
        error = math.sqrt(old * (1 - old) * (1 / during.num_rounds + 1 / before.num_rounds))
        if rate < old - CLEARLY * error:
            return Verdict.WORSE
        if (is_over or during.num_rounds >= settings.num_rounds) and rate < old * (
            1 - settings.max_drop
        ):
            return Verdict.WORSE
    is_enough = during.num_rounds >= settings.num_rounds
    return Verdict.KEEP if is_enough or is_over else None


def watch(
    read: Callable[[], Counters],
    before: Counters,
    start: Counters,
    settings: TrialSettings,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Trial:
    """Poll the counters with `read` until there is a verdict, and return the trial.

    `before` are the counts of the old draft, `start` the counters at the swap. `clock` and `sleep`
    take seconds; tests replace them.
    """
    began_s = seen_s = clock()
    during = Counters()
    while True:
        now_s = clock()
        try:
            during, seen_s = read().since(start), now_s
        except BuildError:
            if now_s - seen_s > MAX_UNREADABLE_S:
                return Trial(Verdict.UNREADABLE, before, during, now_s - began_s)
        is_over = now_s - began_s >= settings.max_minutes * 60
        verdict = judge(before, during, settings, is_over=is_over)
        if verdict is not None:
            return Trial(verdict, before, during, now_s - began_s)
        sleep(POLL_S)
