"""Connect the controller to Triton's metrics and a file that outlasts restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from specdec.drafting.protocol import Drafter
from specdec.drafting.steered import SteeredDrafter
from specdec.serving.metrics.definitions import Counter, Gauge, MetricsSink
from specdec.steering.controller import Controller
from specdec.steering.load import Load
from specdec.steering.settings import ControlSettings
from specdec.steering.state_file import Measurements, StateFile, StateFileMismatchError

REPORT_PERIOD_S = 1.0
"""Least seconds between two updates of a task's gauges."""

SAVE_PERIOD_S = 30.0
"""Seconds between two writes of the controller's state file."""


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
        """Load earlier measurements and begin to save new ones.

        `memory` is the state file, which keeps measurements over restarts. `profile` is a file of
        measurements to begin with. Either may be None. `inform` and `warn` write a line to the
        server's log.
        """
        self.controller = Controller(settings)
        self.load = Load()
        self._metrics = metrics
        self._memory = memory
        self._warn = warn
        self._reported_s: dict[str, float] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        # A profile counts as measured now, so that its acceptance does not fade with its age.
        found = [*self._read(profile, time.time()), *self._read(memory, None)]
        # The newer file is taken last, so that its times are used.
        for source, measured in sorted(found, key=lambda each: each[1].saved_s):
            self._take(source, measured, inform)
        if memory is not None:
            self._thread = threading.Thread(target=self._keep, name="control-memory", daemon=True)
            self._thread.start()

    def finished(self, drafter: Drafter | None, task: str, *, is_complete: bool) -> None:
        """Tell the controller that a request is over, and update the gauges of its task.

        `is_complete`: the request ran to its end. Drafters without a controller are ignored.
        """
        if isinstance(drafter, SteeredDrafter):
            drafter.close(is_complete=is_complete)
            self._report(task)

    def close(self) -> None:
        """Stop the thread that saves, and write the state file a last time."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._save()

    def _report(self, task: str) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s.get(task, -REPORT_PERIOD_S) < REPORT_PERIOD_S:
            return
        self._reported_s[task] = now_s
        report = self.controller.take_report(task)
        if report is None:
            return
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

    def _read(
        self, source: StateFile | None, as_of_s: float | None
    ) -> list[tuple[StateFile, Measurements]]:
        """Return the file with its measurements, or nothing if there are none to take."""
        if source is None:
            return []
        try:
            measured = source.read(as_of_s)
        except StateFileMismatchError as error:
            self._warn(str(error))
            return []
        if measured is None:
            self._warn(f"no measurements of acceptance and times yet: there is no {source.path}")
            return []
        return [(source, measured)]

    def _take(
        self, source: StateFile, measured: Measurements, inform: Callable[[str], None]
    ) -> None:
        self.controller.take(measured.acceptance, measured.costs)
        if measured.costs is None:
            self._warn(
                f"times in {source.path} are of another machine ({measured.machine}), this is "
                f"{source.machine}; measuring them starts anew"
            )
        else:
            inform(f"acceptance and times are taken from {source.path}")
        for drafter in sorted(measured.replaced):
            self._warn(
                f"{source.path} was written with other weights of {drafter}; its acceptance is "
                "measured anew"
            )

    def _keep(self) -> None:
        while not self._closing.wait(SAVE_PERIOD_S):
            self._save()

    def _save(self) -> None:
        assert self._memory is not None
        try:
            self._memory.save(self.controller)
        except OSError as error:
            self._warn(
                f"{self._memory.path} cannot be written, so a restart loses measurements: {error}"
            )
