"""The runner: each step once and with a time limit; a stop loses no measurement."""

import json
import os
import signal
import subprocess
import sys

import pytest

from specdec.loadtest.gpu import running
from specdec.loadtest.gpu.folders import GpuFolders
from specdec.loadtest.gpu.identity import Identity
from specdec.loadtest.gpu.running import RECORDS, SUMMARY, Runner, RunOptions
from specdec.loadtest.gpu.step_list import Step
from specdec.loadtest.gpu.step_records import StepRecords
from specdec.loadtest.gpu.step_report import Verdict
from tests.waiting import wait_for

PYTHON = sys.executable
SOURCES = Identity(sources="aaaa", commit="1234", gpu="gpu")

INTERPRETER = """#!{python}
import sys, time
from pathlib import Path
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict

name = sys.argv[2].rpartition(".")[2]
options = StepOptions.parse(sys.argv[3:])
with Path(__file__).with_name("started").open("a") as file:
    file.write(name + "\\n")
if name == "broken":
    raise RuntimeError("broken")
report = StepReport(options.out)
report.add("measured", 1.23456)
if name == "slow":
    time.sleep(60)
sys.exit(report.finish(Verdict.FAILED if name == "wrong" else Verdict.PASSED, name + " is done"))
"""


def step(name, *, needs_archive=False):
    """Return a step with a limit of 1 s, not worth starting with less than 30 s left."""
    return Step(name, 1, 30, 1, needs_archive)


class Machine:
    """A machine whose Python runs the small steps above."""

    def __init__(self, folder):
        """Write the Python of the machine to `folder`, below which all other files go too."""
        self.folder, self.out = folder, folder / "out"
        self.folders = GpuFolders(folder / "home")
        self.python = folder / "python"
        self.python.write_text(INTERPRETER.format(python=PYTHON))
        self.python.chmod(0o755)

    def run(self, *names, identity=SOURCES, seconds=600.0):
        """Run steps, with what earlier runs left in `out`; return whether all are complete."""
        options = RunOptions(self.out, seconds, is_rehearsal=False)
        runner = Runner(options, self.folders, identity, StepRecords.read(self.out / RECORDS))
        return runner.run([step(name) for name in names])

    @property
    def started(self):
        """Names of the steps that were started, in order."""
        path = self.folder / "started"
        return path.read_text().split() if path.exists() else []

    def latest(self, name, identity=SOURCES):
        """Return the last record of a step."""
        return StepRecords.read(self.out / RECORDS).latest(name, identity)

    @property
    def summary(self):
        """The table of the last run."""
        return (self.out / SUMMARY).read_text()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a machine that ends a step 0.1 s after its limit."""
    made = Machine(tmp_path)
    monkeypatch.setattr(running.sys, "executable", str(made.python))
    monkeypatch.setattr(running, "_GRACE_S", 0.1)
    return made


def test_complete_steps_are_not_run_again(machine):
    """A second run takes only the steps without a record."""
    assert machine.run("first")
    assert machine.run("first", "second")

    assert machine.started == ["first", "second"]
    assert machine.latest("first").facts == {"measured": 1.235}


def test_changed_sources_and_other_gpus_are_measured_again(machine):
    """A record counts only for the code and the GPU that it was measured on."""
    machine.run("first")
    machine.run("first", identity=Identity("bbbb", "5678", "gpu"))
    machine.run("first", identity=Identity("aaaa", "1234", "other gpu"))

    assert machine.started == ["first"] * 3


def test_overdue_step_is_ended_and_its_facts_are_kept(machine):
    """The steps after it still run."""
    assert not machine.run("slow", "first")

    record = machine.latest("slow")
    assert (record.verdict, record.facts) == (Verdict.TIMED_OUT, {"measured": 1.235})
    assert machine.latest("first").verdict is Verdict.PASSED


def test_failing_steps_do_not_stop_other_steps(machine):
    """A step that raises and one with a wrong result are both recorded as failed."""
    assert not machine.run("broken", "wrong", "first")

    verdicts = [machine.latest(name).verdict for name in ("broken", "wrong", "first")]
    assert verdicts == [Verdict.FAILED, Verdict.FAILED, Verdict.PASSED]
    assert "RuntimeError: broken" in (machine.out / running.LOG).read_text()


def test_new_steps_come_before_those_that_were_cut_and_those_that_failed(machine):
    """A repeated failure must not use up the time of steps that never ran."""
    machine.run("wrong", "slow")
    machine.run("wrong", "slow", "first")

    assert machine.started == ["wrong", "slow", "first", "slow", "wrong"]


def test_step_that_does_not_fit_is_left_out_and_named(machine):
    """The summary says how many seconds it needs and how many are left."""
    assert not machine.run("first", seconds=20.0)

    assert machine.started == []
    assert "| first | – | not run | needs 30 s, 20 s are left |" in machine.summary


def test_step_that_needs_the_archive_waits_for_it(machine):
    """Without these packed files it is not started, and not recorded as failed."""
    options = RunOptions(machine.out, 600.0, is_rehearsal=False)
    Runner(options, machine.folders, SOURCES, StepRecords()).run(
        [step("first", needs_archive=True)]
    )

    assert machine.started == []
    assert "waits for the archive" in machine.summary


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_run_keeps_its_measurements_and_the_next_continues(machine, number):
    """The step that was running is recorded as timed out; complete steps are not repeated."""
    runner = subprocess.Popen([PYTHON, "-c", KILLED_RUN, str(machine.folder)])
    wait_for(lambda: any(machine.out.glob("slow.json")) and "measured" in slow_file(machine))
    runner.send_signal(number)
    runner.wait(20)

    machine.run("first", "slow", "second")

    assert machine.started == ["first", "slow", "second", "slow"]
    stopped = [
        each for each in StepRecords.read(machine.out / RECORDS).records if each.step == "slow"
    ]
    assert [each.verdict for each in stopped] == [Verdict.TIMED_OUT, Verdict.TIMED_OUT]
    assert stopped[0].facts == {"measured": 1.235}


KILLED_RUN = """
import sys
from pathlib import Path
from tests.unit.loadtest.gpu.test_running import Machine, running
machine = Machine(Path(sys.argv[1]))
running.sys.executable = str(machine.python)
running._GRACE_S = 60.0
machine.run("first", "slow", "second")
"""


def slow_file(machine):
    """Return the text of the result file of the step `slow`."""
    return (machine.out / "slow.json").read_text()


def test_ended_step_leaves_no_process(machine):
    """Whatever a step started is ended with it."""
    machine.run("slow")

    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(machine.python) not in listed.stdout


def test_file_has_one_line_for_each_record(machine):
    """A change of the records is then easy to read in Git."""
    machine.run("first", "second")

    lines = (machine.out / RECORDS).read_text().splitlines()
    assert [lines[0], lines[-1], len(lines)] == ["[", "]", 4]
    assert json.loads(lines[1].rstrip(","))["figure"] == "first is done"
    assert os.access(machine.folders.records, os.R_OK)
