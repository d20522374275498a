"""Learn from vLLM how full it is."""

from __future__ import annotations

from typing import Any

from specdec.health.occupancy import Occupancy, PeakOccupancy


def occupancy_logger(peaks: PeakOccupancy) -> type:
    """Return the class of a vLLM logger that notes in `peaks` how full each step is.

    vLLM adds its Prometheus logger, which updates dozens of metrics at each step, unless a given
    logger is a subclass of it.
    """
    from vllm.v1.metrics.loggers import PrometheusStatLogger  # noqa: PLC0415 - vLLM is prepared

    class OccupancyLogger(PrometheusStatLogger):  # type: ignore[misc]
        """The only logger of a vLLM engine of ours."""

        def __init__(self, *_: Any, **__: Any) -> None:
            """Create none of vLLM's metrics."""

        def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
            """Take the statistics of one step; None in a step without the scheduler."""
            if scheduler_stats is not None:
                # Newer versions count requests that are held back apart from the others.
                num_waiting = scheduler_stats.num_waiting_reqs
                num_waiting += getattr(scheduler_stats, "num_skipped_waiting_reqs", 0)
                peaks.note(Occupancy(num_waiting, scheduler_stats.kv_cache_usage))

        def log(self, *_: Any, **__: Any) -> None:
            """Do nothing."""

        log_engine_initialized = record_sleep_state = record_admission_rejection = log

    return OccupancyLogger
