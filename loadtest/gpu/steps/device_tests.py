"""Run `tests/gpu` on the device, in this process, so that every kernel is compiled once."""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest

from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict

DEVICE_VARIABLE = "SPECDEC_TEST_DEVICE"
"""The environment variable that names the device for tests/gpu; without it they use `cuda`."""


class Recorder:
    """A pytest plugin that writes each test's outcome and seconds into the step's report."""

    def __init__(self, report: StepReport, options: StepOptions) -> None:
        self._report, self._options = report, options
        self.seconds: dict[str, float] = {}
        self.outcomes: dict[str, str] = {}

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.outcomes.values())

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase's seconds; a test passes if all its phases pass."""
        name = report.nodeid.removeprefix("tests/gpu/")
        self.seconds[name] = round(self.seconds.get(name, 0.0) + report.duration, 2)
        if report.outcome != "passed" or name not in self.outcomes:
            self.outcomes[name] = report.outcome
        if report.when == "teardown":
            self._report.add("seconds", self.seconds)
            others = {name: each for name, each in self.outcomes.items() if each != "passed"}
            self._report.add("not_passed", others)

    @pytest.hookimpl
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Stop before the next test once the step's time is up."""
        if self._options.remaining_s < 0:
            item.session.shouldstop = "the step's time is up"


def main(argv: list[str] | None = None) -> int:
    """Run the tests; FAILED if one fails or, on a GPU, if one is skipped."""
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    os.environ[DEVICE_VARIABLE] = options.device
    recorder = Recorder(report, options)
    # Warnings from the machine's versions of packages are no failures.
    arguments = ["-m", "gpu", "-q", "-o", "filterwarnings=", "-p", "no:cacheprovider", "tests/gpu"]
    status = pytest.main(arguments, plugins=[recorder])
    counts = recorder.counts
    figure = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    if status == pytest.ExitCode.INTERRUPTED:
        return report.finish(Verdict.TIMED_OUT, figure)
    is_good = status == pytest.ExitCode.OK and counts["passed"] > 0
    is_good &= options.is_rehearsal or not counts["skipped"]
    return report.finish(Verdict.PASSED if is_good else Verdict.FAILED, figure)


if __name__ == "__main__":
    sys.exit(main())
