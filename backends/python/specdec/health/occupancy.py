"""How full an engine is: the requests that wait for room, and the use of its KV cache."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

PERIOD_S = 0.25
"""Seconds between two updates of the metrics: shorter than an answer, much longer than an update
takes."""
REPEAT_S = 1.0
"""Seconds after which an unchanged value is set again. If a model is loaded again, its old process
sets the same metrics to 0 at its end."""
CLOSE_S = 10.0
"""Most seconds to wait for the thread's last update, as for that of the other metrics."""

WAITING_HELP = "Requests that wait for room in the engine"
USAGE_HELP = "Share of the engine's KV cache that running requests hold, 0 to 1"
"""Help texts of the metrics."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How full an engine is at one time."""

    num_waiting: int = 0
    """Requests without a token yet that the engine has no room for."""
    kv_cache_usage: float = 0.0
    """Share of the KV cache that running requests hold, 0 to 1."""


class PeakOccupancy:
    """The highest values of an engine's occupancy since someone last asked.

    Between two rounds a request holds nothing in the engine. So a look at one time would miss most
    requests that run. Any thread may call any method.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peak = self._latest = Occupancy()

    def note(self, now: Occupancy) -> None:
        """Take the present occupancy."""
        with self._lock:
            self._latest = now
            self._peak = Occupancy(
                max(self._peak.num_waiting, now.num_waiting),
                max(self._peak.kv_cache_usage, now.kv_cache_usage),
            )

    def take(self) -> Occupancy:
        """Return the highest values since the last call. The state at that call counts too."""
        with self._lock:
            peak, self._peak = self._peak, self._latest
            return peak


class OccupancyWatch:
    """A thread that passes an engine's occupancy on: when it has changed, and now and then."""

    def __init__(
        self, ask: Callable[[], Occupancy | None], show: Callable[[Occupancy], object]
    ) -> None:
        """Start the thread. `ask` returns the occupancy, or None if the engine cannot tell it."""
        self._ask = ask
        self._show = show
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="occupancy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        shown, shown_s = None, 0.0
        while not self._closing.wait(PERIOD_S):
            try:
                now, now_s = self._ask(), time.monotonic()
                if now is not None and (now != shown or now_s - shown_s >= REPEAT_S):
                    self._show(now)
                    shown, shown_s = now, now_s
            except Exception:
                # Without this thread, proxies would send requests by old values.
                logger.exception("the occupancy of an engine could not be shown")
                shown = None
