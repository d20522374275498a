"""Report what happens to drafters: to the log, to the metrics and to the controller."""

from __future__ import annotations

from specdec.deployment.freshness import Drifted
from specdec.drafting.names import TREE_SUFFIX
from specdec.errors import SpecdecError
from specdec.serving.metrics.definitions import Counter, Gauge, MetricsSink
from specdec.steering.controller import Controller
from specdec.triton_backend.log import inform, warn


class DrafterReports:
    """The receiver of reports about drafters; thread-safe."""

    def __init__(self, metrics: MetricsSink, controller: Controller) -> None:
        self._metrics = metrics
        self._controller = controller

    def freshness(self, drafter: str, drifted: Drifted | None) -> None:
        """Report whether a drafter is stale; None if it was trained on the served target."""
        self._metrics.set(Gauge.draft_stale, float(drifted is not None), drafter=drafter)
        if drifted is not None:
            warn(str(drifted))

    def replaced(self, drafter: str) -> None:
        """Report that a drafter serves other weights, so that its estimates begin anew."""
        self._controller.renew([drafter, drafter + TREE_SUFFIX])
        inform(f"another version of {drafter} is served: its acceptance is measured anew")

    def failed(self, drafter: str, error: Exception) -> None:
        """Report that a draft engine failed in a round."""
        reason = error.error_type if isinstance(error, SpecdecError) else "internal"
        self._metrics.add(Counter.draft_failures_total, drafter=drafter, reason=reason)
        warn(f"drafter {drafter} failed: {error}")
