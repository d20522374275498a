"""A result holds figures and conditions; its size does not depend on how much was measured."""

import json
from dataclasses import dataclass

import pytest

from loadtest.bench import acceptance, control, exact, prediction, reporting, speed
from loadtest.bench.arms import Arm, Case
from loadtest.bench.batches import Pass as BatchPass
from loadtest.bench.batches import figures as batch_figures
from loadtest.bench.comparing import Comparison
from loadtest.bench.counting import DraftCounts
from loadtest.bench.ramp_report import Pass as RampPass
from loadtest.bench.ramp_report import figures as ramp_figures
from loadtest.bench.speed_tables import Measurement
from loadtest.bench.task_tables import figures as task_figures
from loadtest.bench.task_tables import outcomes

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
    """A figure with an interval."""

    middle: float
    low: float


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Return the folder that stands for results/scratch."""
    folder = tmp_path / "scratch"
    monkeypatch.setattr(reporting, "SCRATCH", folder)
    return folder


def test_single_measurements_are_written_elsewhere(tmp_path, scratch):
    """The result has the figures alone; every measurement lies in the folder that git ignores."""
    facts = {"conditions": CONDITIONS, "gain": Inner(1.5, 1.2)}

    reporting.write_result("x", tmp_path / "out", facts, "| a |", raw=[Inner(1 / 3, 2.0)])

    assert {path.name for path in (tmp_path / "out").iterdir()} == {"x.json", "x.md"}
    found = json.loads((tmp_path / "out" / "x.json").read_text())
    assert found == {"conditions": CONDITIONS, "gain": {"middle": 1.5, "low": 1.2}}
    raw = json.loads((scratch / "x.raw.json").read_text())
    assert raw["measurements"] == [{"middle": 1 / 3, "low": 2.0}]
    assert raw["conditions"]["command"] == "specdec bench x"


def test_without_measurements_nothing_is_written_elsewhere(tmp_path, scratch):
    """A bench that keeps none leaves no file of them."""
    reporting.write_result("x", tmp_path, {"conditions": CONDITIONS}, "| a |")

    assert not scratch.exists()


def test_figures_are_rounded_and_stand_one_on_a_line(tmp_path, scratch):
    """Four significant digits, whole numbers as they are; a record of a list is a line."""
    rows = [
        {"arm": "off", "rate": 123.456789, "count": 1234567},
        {"arm": "auto", "p": 1.23456e-169},
    ]

    facts = {"conditions": CONDITIONS, "rows": tuple(rows), "none": None, "empty": []}
    reporting.write_result("x", tmp_path, facts, "| a |")

    text = (tmp_path / "x.json").read_text()
    assert '  {"arm": "off", "rate": 123.5, "count": 1234567},' in text.splitlines()
    found = json.loads(text)
    assert found["rows"][1] == {"arm": "auto", "p": 1.235e-169}
    assert found["none"] is None
    assert found["empty"] == []


def measured(arm, number):
    """Return one answer of a bench of speed."""
    return Measurement(f"sql-{number}", "sql", arm, 7, 1, 0.5, 2.3, STATISTICS)


def speed_report(num_prompts):
    """Return what `specdec bench speed` writes."""
    arms = ["direct", "off", "auto"]
    found = [measured(arm, number) for arm in arms for number in range(num_prompts)]
    return speed.report(found, arms, ["auto"], has_times=True)[0]


def control_report(num_prompts):
    """Return what `specdec bench control` writes."""
    own = [measured(arm, number) for arm in ("off", "auto") for number in range(num_prompts)]
    return control.figures({"default pair": own})


def task_report(num_prompts):
    """Return what `specdec bench tasks` writes."""
    found = [measured(arm, number) for arm in ("off", "auto") for number in range(num_prompts)]
    return task_figures(outcomes(found, ["auto"]))


def exact_report(num_prompts):
    """Return what `specdec bench exact` writes."""
    found = [
        Comparison(str(number), "qa", "greedy", arm, 9, None, True, 3, 6, 2)
        for number in range(num_prompts)
        for arm in ("off", "lookup")
    ]
    return exact.figures(found)


def acceptance_report(num_prompts):
    """Return what `specdec bench acceptance` writes."""
    counts = DraftCounts(9, 4, 3, 6, 3, 5)
    found = [acceptance.Counts("qa", "greedy", "draft", counts)] * num_prompts
    return [acceptance.figures(found, Case(0.0), Arm("draft"))]


def prediction_report(num_prompts):
    """Return what `specdec bench prediction` writes."""
    found = [
        prediction.Outcome(str(number), kind, 9, 6, 1, 3, is_equal=True)
        for kind in prediction.KINDS
        for number in range(num_prompts)
    ]
    return [prediction.figures(found, kind) for kind in prediction.KINDS]


def ramp_report(num_passes):
    """Return what `specdec bench ramp` writes."""
    return ramp_figures(
        [
            RampPass(4, number, arm, 1.0, 100, 50, 8, 4, 0.2)
            for arm in ("off", "auto")
            for number in range(num_passes)
        ]
    )


def batches_report(num_passes):
    """Return what `specdec bench batches` writes."""
    return batch_figures(
        [
            BatchPass(order, number, 100, 1.0, 50.0, 60.0)
            for order in ("mixed", "apart")
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
        prediction_report,
        ramp_report,
        batches_report,
    ],
)
def test_size_of_a_result_does_not_grow_with_the_answers(report, tmp_path, scratch):
    """Twenty times the answers make the same entries, of a few more digits."""
    sizes = []
    for count in (3, 60):
        facts = {"conditions": CONDITIONS, "figures": report(count)}
        reporting.write_result("x", tmp_path, facts, "| a |")
        sizes.append((tmp_path / "x.json").stat().st_size)

    small, large = sizes
    assert abs(large - small) < 0.1 * small
