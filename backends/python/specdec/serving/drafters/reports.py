"""Report what happens to drafters: to the log, to the metrics and to the controller."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.deployment.freshness import StaleDrafter
from specdec.drafting.registry import DrafterId
from specdec.errors import SpecdecError
from specdec.serving.metrics.definitions import Counter, Gauge, MetricsSink
from specdec.steering.controller import Controller
from specdec.triton_backend.log import inform, warn


class DrafterReports:
    """The receiver of reports about drafters; thread-safe."""

    def __init__(
        self, metrics: MetricsSink, controller: Controller, drafters: Sequence[DrafterId]
    ) -> None:
        self._metrics = metrics
        self._controller = controller
        self._drafters = drafters

    def freshness(self, drafter: str, stale: StaleDrafter | None) -> None:
        """Report whether a drafter is stale.

        `stale` is None if it was trained on the served target.
        """
        self._metrics.set(Gauge.draft_stale, float(stale is not None), drafter=drafter)
        if stale is not None:
            warn(str(stale))

    def replaced(self, drafter: str) -> None:
        """Report that a drafter serves other weights, so that its estimates begin anew."""
        trees = [each.name for each in self._drafters if each.head == drafter]
        self._controller.renew([drafter, *trees])
        inform(f"another version of {drafter} is served: its acceptance is measured anew")

    def failed(self, drafter: str, error: Exception) -> None:
        """Report that a draft engine failed in a round."""
        reason = error.error_type if isinstance(error, SpecdecError) else "internal"
        self._metrics.add(Counter.draft_failures_total, drafter=drafter, reason=reason)
        warn(f"drafter {drafter} failed: {error}")

    def count_inside(self, drafter: str, reason: str) -> None:
        """Count a failure of a drafter inside the target, which has logged it."""
        self._metrics.add(Counter.draft_failures_total, drafter=drafter, reason=reason)
