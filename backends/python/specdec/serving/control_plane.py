"""Connect the controller to Triton's metrics and a file that outlasts restarts."""

from __future__ import annotations

import time
from collections.abc import Callable

from specdec.drafting.protocol import Drafter
from specdec.drafting.steered import SteeredDrafter
from specdec.serving.metrics.definitions import Counter, Gauge, MetricsSink
from specdec.steering.controller import Controller
from specdec.steering.kept_measurements import KeptMeasurements
from specdec.steering.load import Load
from specdec.steering.settings import ControlSettings
from specdec.steering.state_file import StateFile
from specdec.steering.tasks import TaskReport

REPORT_PERIOD_S = 1.0
"""Least seconds between two updates of a task's gauges."""


class ControlPlane:
    """The controller with its metrics and its state file; thread-safe."""

    def __init__(
        self,
        settings: ControlSettings,
        metrics: MetricsSink,
        memory: StateFile | None,
        profile: StateFile | None,
        inform: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """Load earlier measurements and begin to save new ones: see KeptMeasurements."""
        self.controller = Controller(settings)
        self.load = Load()
        self._metrics = metrics
        self._reported_s: dict[str, float] = {}
        self._kept = KeptMeasurements(self.controller, memory, profile, inform, warn)

    def finished(self, drafter: Drafter | None, task: str, *, is_complete: bool) -> None:
        """Tell the controller that a request is over, and update the gauges of its task.

        `is_complete`: the request ran to its end. Drafters without a controller are ignored.
        """
        if isinstance(drafter, SteeredDrafter):
            drafter.close(is_complete=is_complete)
            self._report(task)

    def close(self) -> None:
        """Write the state file a last time."""
        self._kept.close()

    def _report(self, task: str) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s.get(task, -REPORT_PERIOD_S) < REPORT_PERIOD_S:
            return
        self._reported_s[task] = now_s
        report = self.controller.take_report(task)
        if report is not None:
            self.publish(task, report)

    def publish(self, task: str, report: TaskReport) -> None:
        """Set the gauges of a task from a report of this or another controller."""
        metrics, choice = self._metrics, report.choice
        for drafter, alpha in report.alphas:
            metrics.set(Gauge.acceptance_alpha, alpha, task=task, drafter=drafter)
        if choice is None:
            return
        metrics.set(Gauge.draft_tokens_k, report.num_draft_tokens, task=task)
        metrics.set(Gauge.speculation_enabled, float(not choice.is_off), task=task)
        metrics.set(Gauge.estimated_speedup, report.estimated_gain, task=task)
        measured = report.measured_gain
        if measured is not None:
            metrics.set(Gauge.measured_speedup, measured.gain, task=task)
            metrics.set(Gauge.measured_speedup_low, measured.low, task=task)
            metrics.set(Gauge.measured_speedup_high, measured.high, task=task)
        num_off, num_on = report.num_switches
        metrics.add(Counter.speculation_switches_total, num_off, task=task, to="off")
        metrics.add(Counter.speculation_switches_total, num_on, task=task, to="on")
