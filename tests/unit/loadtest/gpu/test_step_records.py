"""Records of runs: each run once, and the last complete one of each step kept."""

from dataclasses import replace

from specdec.loadtest.gpu.step_records import StepRecord, StepRecords
from specdec.loadtest.gpu.step_report import Verdict

RECORD = StepRecord(
    step="hop",
    sources="aaaa",
    commit="1234",
    gpu="gpu",
    finished_at="2026-01-01T00:00:00.000+00:00",
    seconds=3.0,
    verdict=Verdict.PASSED,
    figure="1 ms",
    facts={"costs": [1, 2]},
)


def at(second, **changes):
    """Return the record as of a run that finished `second` seconds later, with `changes`."""
    return replace(RECORD, finished_at=f"2026-01-01T00:00:{second:02}.000+00:00", **changes)


def test_reading_gives_what_was_written(tmp_path):
    """Verdicts and facts are included."""
    StepRecords([RECORD]).write(tmp_path / "steps.json")

    assert StepRecords.read(tmp_path / "steps.json").records == [RECORD]


def test_merging_records_twice_changes_nothing(tmp_path):
    """The same file may be collected again; a missing file counts as empty."""
    for name, record in (("old.json", at(1)), ("new.json", at(2))):
        StepRecords([record]).write(tmp_path / name)

    paths = [tmp_path / name for name in ("new.json", "old.json", "new.json", "none.json")]

    assert StepRecords.read(*paths).records == [at(1), at(2)]


def test_pruning_keeps_the_last_complete_run_and_later_ones():
    """This goes by step and GPU; a run that timed out before a complete one has nothing to add."""
    kept = [at(3), at(4, verdict=Verdict.TIMED_OUT), at(5, gpu="other"), at(6, step="cores")]

    assert StepRecords([at(1), at(2, verdict=Verdict.TIMED_OUT), *kept]).pruned().records == kept


def test_missed_goal_is_complete_and_a_failure_is_not():
    """A step that only missed a goal is not run again."""
    complete = {each for each in Verdict if replace(RECORD, verdict=each).is_complete}

    assert complete == {Verdict.PASSED, Verdict.MISSED}
