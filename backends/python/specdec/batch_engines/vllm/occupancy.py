"""Learn from vLLM how full it is."""

from __future__ import annotations

from typing import Any

from specdec.torch_engine.occupancy import Occupancy, PeakOccupancy


def occupancy_logger(vllm: Any, peaks: PeakOccupancy) -> type:
    """Return a logger class of vLLM's whose instances note in `peaks` how full each step is.

    It is a subclass of vLLM's Prometheus logger, because vLLM adds that one to any others, and
    updates dozens of metrics in it at each step.
    """

    class OccupancyLogger(vllm.v1.metrics.loggers.PrometheusStatLogger):  # type: ignore[misc]
        """The only logger of a vLLM engine of ours."""

        def __init__(self, *_: Any, **__: Any) -> None:
            """Create none of vLLM's metrics."""

        def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
            """Take the statistics of one step; None in a step without the scheduler."""
            if scheduler_stats is not None:
                num_waiting = scheduler_stats.num_waiting_reqs
                peaks.note(Occupancy(num_waiting, scheduler_stats.kv_cache_usage))

        def log(self, *_: Any, **__: Any) -> None:
            """Do nothing."""

        log_engine_initialized = record_sleep_state = record_admission_rejection = log

    return OccupancyLogger
