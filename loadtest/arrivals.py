"""When requests of an open load start."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_logger = logging.getLogger(__name__)

# A start later than this is a load other than the one asked for, and is said so.
LATE_S = 0.05


def poisson_arrivals(rate_per_s: float, seed: int) -> Iterator[float]:
    """Give the start times (s from the beginning) of a Poisson process."""
    gaps = random.Random(seed)
    now_s = 0.0
    while True:
        now_s += gaps.expovariate(rate_per_s)
        yield now_s


def keep_pace(
    due_times_s: Iterable[float], clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[tuple[float, float]]:
    """Wait for each due time and give (due_s, lateness_s).

    Times are absolute, so that one late start delays no later one; nobody waits for an answer.
    Warns when starts come late: the load generator is then the bottleneck.
    """
    num_late = 0
    for due_s in due_times_s:
        wait_s = due_s - clock()
        if wait_s > 0:
            sleep(wait_s)
        lateness_s = max(0.0, clock() - due_s)
        if lateness_s > LATE_S:
            num_late += 1
            if num_late.bit_count() == 1:  # the 1st, 2nd, 4th, 8th …: often enough
                _logger.warning("%d starts late, now by %.3f s", num_late, lateness_s)
        yield due_s, lateness_s
