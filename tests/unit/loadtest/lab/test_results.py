"""Tests of the result files of benches.

A result holds figures and conditions. Its size does not depend on the number of measurements.
"""

import json
import subprocess
from dataclasses import dataclass

import pytest

from specdec.loadtest.kit import results, speed_tables
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import Arm
from specdec.loadtest.kit.streams import Pass
from specdec.loadtest.lab.controller import control
from specdec.loadtest.lab.exactness import exact_report as exact_figures
from specdec.loadtest.lab.exactness.comparing import Comparison
from specdec.loadtest.lab.load import ramp_report as ramp_figures
from specdec.loadtest.lab.speed import speed, task_tables

CONDITIONS = {
    "command": "specdec bench x",
    "finished_at": "2026-11-26T12:00:00+00:00",
    "commit": "abc",
    "processor": "a processor",
    "num_cores": 2,
    "load_average_1min": 0.5,
    "packages": {"torch": "2.13.0"},
}
STATISTICS = {
    "round_times": {
        "num_rounds": 3,
        "total_s": 0.9,
        "draft_s": 0.2,
        "target_s": 0.6,
        "draft_engine_s": 0.1,
        "target_engine_s": 0.5,
    },
    "acceptance_histogram_by_draft_length": {"2": [1, 1, 1]},
    "num_spec_steps": 3,
    "num_draft_tokens": 6,
    "num_accepted_draft_tokens": 3,
}


@dataclass(frozen=True)
class Inner:
    """A figure with the lower end of its interval."""

    middle: float
    low: float


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Replace results/scratch by a temporary folder, and return it."""
    folder = tmp_path / "scratch"
    monkeypatch.setattr(results, "SCRATCH", folder)
    return folder


def test_single_measurements_are_written_to_scratch(tmp_path, scratch):
    """The result has only figures; all measurements go to the folder that git ignores."""
    facts = {"conditions": CONDITIONS, "gain": Inner(1.5, 1.2)}

    results.write_result("x", tmp_path / "out", facts, "| a |", raw=[Inner(1 / 3, 2.0)])

    assert {path.name for path in (tmp_path / "out").iterdir()} == {"x.json", "x.md"}
    found = json.loads((tmp_path / "out" / "x.json").read_text())
    assert found == {"conditions": CONDITIONS, "gain": {"middle": 1.5, "low": 1.2}}
    raw = json.loads((scratch / "x.raw.json").read_text())
    assert raw["measurements"] == [{"middle": 1 / 3, "low": 2.0}]
    assert raw["conditions"]["command"] == "specdec bench x"


def test_without_measurements_nothing_is_written_to_scratch(tmp_path, scratch):
    """A bench without single measurements does not create the folder."""
    results.write_result("x", tmp_path, {"conditions": CONDITIONS}, "| a |")

    assert not scratch.exists()


def test_figures_are_rounded_and_each_record_is_a_line(tmp_path, scratch):
    """Figures have four significant digits, but whole numbers keep all of theirs."""
    rows = [
        {"arm": "off", "rate": 123.456789, "count": 1234567},
        {"arm": "auto", "p": 1.23456e-169},
    ]

    facts = {"conditions": CONDITIONS, "rows": tuple(rows), "none": None, "empty": []}
    results.write_result("x", tmp_path, facts, "| a |")

    text = (tmp_path / "x.json").read_text()
    assert '  {"arm": "off", "rate": 123.5, "count": 1234567},' in text.splitlines()
    found = json.loads(text)
    assert found["rows"][1] == {"arm": "auto", "p": 1.235e-169}
    assert found["none"] is None
    assert found["empty"] == []


def test_commit_is_dirty_if_code_has_changed(tmp_path):
    """Results and missing weights do not count: only code decides what is measured."""
    files = ["code.py", "draft/model.safetensors", "loadtest/results/x.json"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["init"], ["add", "."], [*author, "commit", "--message", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    commit = results.commit_of(tmp_path)

    (tmp_path / "loadtest/results/x.json").write_text("2")
    (tmp_path / "draft/model.safetensors").unlink()
    assert results.commit_of(tmp_path) == commit
    (tmp_path / "draft/model.safetensors").write_text("2")
    assert results.commit_of(tmp_path) == f"{commit}-dirty"
    (tmp_path / "draft/model.safetensors").write_text("1")
    (tmp_path / "code.py").unlink()

    assert results.commit_of(tmp_path) == f"{commit}-dirty"


def measured(arm, number):
    """Return the measurement of one answer, as `specdec bench speed` makes it."""
    return Measurement(f"sql-{number}", "sql", arm, 7, 1, 0.5, 2.3, STATISTICS)


def speed_report(num_prompts):
    """Return the figures that `specdec bench speed` writes for `num_prompts` answers per arm."""
    arms = ["direct", "off", "auto"]
    found = [measured(arm, number) for arm in arms for number in range(num_prompts)]
    return speed.report(found, arms, ["auto"], has_times=True)[0]


def control_report(num_prompts):
    """Return the figures that `specdec bench control` writes for `num_prompts` answers per arm."""
    own = [measured(arm, number) for arm in ("off", "auto") for number in range(num_prompts)]
    return control.figures(own)


def task_report(num_prompts):
    """Return the figures that `specdec bench tasks` writes for `num_prompts` answers per arm."""
    found = [measured(arm, number) for arm in ("off", "auto") for number in range(num_prompts)]
    return task_tables.figures(task_tables.outcomes(found, ["auto"]))


def exact_report(num_prompts):
    """Return the figures that `specdec bench exact` writes for `num_prompts` answers per arm."""
    found = [
        Comparison(str(number), "qa", "greedy", arm, 9, None, True, 3, 6, 2)
        for number in range(num_prompts)
        for arm in ("off", "lookup")
    ]
    return exact_figures.figures(found)


def acceptance_report(num_prompts):
    """Return the figures that `specdec bench acceptance` writes for `num_prompts` answers."""
    found = [measured("auto", number) for number in range(num_prompts)]
    return speed_tables.acceptances(found, {"auto": Arm("auto")})


def ramp_report(num_passes):
    """Return the figures that `specdec bench ramp` writes for `num_passes` passes per arm."""
    return ramp_figures.figures(
        [
            Pass(4, number, arm, 1.0, 100, 50, 8, 4, 0.2)
            for arm in ("off", "auto")
            for number in range(num_passes)
        ]
    )


@pytest.mark.parametrize(
    "report",
    [
        speed_report,
        control_report,
        task_report,
        exact_report,
        acceptance_report,
        ramp_report,
    ],
)
def test_size_of_a_result_does_not_grow_with_the_answers(report, tmp_path, scratch):
    """Twenty times the answers give a file of the same size within 10 %."""
    sizes = []
    for count in (3, 60):
        facts = {"conditions": CONDITIONS, "figures": report(count)}
        results.write_result("x", tmp_path, facts, "| a |")
        sizes.append((tmp_path / "x.json").stat().st_size)

    small, large = sizes
    assert abs(large - small) < 0.1 * small
