"""Start times of requests in an open load, where no request waits for another's answer."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_logger = logging.getLogger(__name__)

# Seconds. Later starts mean another load than the one asked for, so they are logged.
LATE_S = 0.05


def poisson_arrivals(rate_per_s: float, seed: int) -> Iterator[float]:
    """Yield the start times of a Poisson process, in seconds since its beginning, without end.

    `rate_per_s` is the mean number of starts per second.
    """
    gaps = random.Random(seed)
    now_s = 0.0
    while True:
        now_s += gaps.expovariate(rate_per_s)
        yield now_s


def keep_pace(
    due_times_s: Iterable[float], clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[tuple[float, float]]:
    """Wait for each due time and yield (due_s, lateness_s), both in seconds.

    `clock` returns seconds since the beginning, and `sleep` waits that many seconds. Due times are
    absolute, so that one late start delays no later one. Logs a warning when starts come late: then
    the load generator is the bottleneck.
    """
    num_late = 0
    for due_s in due_times_s:
        wait_s = due_s - clock()
        if wait_s > 0:
            sleep(wait_s)
        lateness_s = max(0.0, clock() - due_s)
        if lateness_s > LATE_S:
            num_late += 1
            # Warns at the 1st, 2nd, 4th, 8th … late start, so that the log stays short.
            if num_late.bit_count() == 1:
                _logger.warning("%d starts late, now by %.3f s", num_late, lateness_s)
        yield due_s, lateness_s
