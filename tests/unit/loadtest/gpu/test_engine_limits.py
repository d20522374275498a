"""The steps `engine_limits` and `exact_rows`: failing parts, rehearsals and steps that time out."""

import json
import math
from dataclasses import replace

import pytest

from specdec.loadtest.gpu.decoders.passes import NUM_CONTEXT_TOKENS
from specdec.loadtest.gpu.steps import engine_limits, exact_rows
from specdec.loadtest.gpu.steps.engine_limits import ON_GPU, REHEARSED
from specdec.loadtest.gpu.steps.exact_rows import Comparison


@pytest.fixture
def rehearse(tmp_path, monkeypatch, one_thread):
    """Return a function that runs the smallest rehearsal, without transformers.

    The function returns the exit status and the result.
    """

    def run():
        out = tmp_path / "out.json"
        status = engine_limits.main(["--out", str(out), "--seconds", "60", "--rehearse"])
        return status, json.loads(out.read_text())

    sizes = replace(REHEARSED, steps=(("tiny", (1,)),), peers=(), num_prompt_tokens=64)
    monkeypatch.setattr(engine_limits, "REHEARSED", sizes)
    monkeypatch.setattr(engine_limits.Bench, "_chained", lambda _: None)
    return run


def test_device_that_cannot_be_measured_leaves_all_times(rehearse, monkeypatch):
    """If a kernel does not compile, for example, the step fails but its times are recorded."""

    def broken(*_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(engine_limits, "measure_device", broken)

    status, result = rehearse()

    assert (status, result["verdict"]) == (1, "failed")
    assert result["facts"]["errors"] == {"device": "RuntimeError: no compiler"}
    steps = result["facts"]["steps"]["tiny"]
    assert len(steps) == 3
    assert all(each["graph_us"] > 0 and math.isnan(each["limit_us"]) for each in steps)
    assert result["facts"]["prompts"]["tiny"]["tokens_per_s"] > 0


def test_rehearsal_counts_measurements_and_states_its_conditions(rehearse):
    """It gives no ratio, because a CPU's share of its peak says nothing."""
    status, result = rehearse()

    assert (status, result["verdict"], result["figure"]) == (0, "passed", "4 measurements")
    assert result["facts"]["num_context_tokens"] == NUM_CONTEXT_TOKENS
    assert list(result["facts"]["seconds"]) == [
        *("device", "steps of tiny (1,)", "prompt of tiny", "chained"),
    ]


def test_large_batches_are_timed_call_by_call(rehearse, monkeypatch):
    """128 sequences of 8 rows read all weights 32 times; ten calls would leave no time for more."""
    seen = []

    def step_times(_config, _parts, _speed, _cache, batches, _lengths, num_calls):
        seen.append((max(batches), num_calls))
        return iter(())

    monkeypatch.setattr(engine_limits, "step_times", step_times)
    groups = (("tiny", (1, 8)), ("tiny", (32, 128)))
    sizes = replace(engine_limits.REHEARSED, steps=groups, num_calls=10, prompts=())
    monkeypatch.setattr(engine_limits, "REHEARSED", sizes)

    rehearse()

    assert seen == [(8, 10), (128, 1)]


def test_goals_are_measured_first():
    """Steps of 8B at batch 1 and 8 come before everything that has no goal."""
    assert ON_GPU.steps[0] == ("8b", (1, 8))


@pytest.mark.parametrize(("num_unequal", "verdict"), [(0, "timed out"), (1, "failed")])
def test_unequal_bits_fail_the_step_even_if_the_time_is_up(
    tmp_path, monkeypatch, num_unequal, verdict
):
    """The first of four shapes takes all the time here; its unequal bits outweigh the timeout."""

    def compare(_name, options):
        yield Comparison("batch of 16", 16, num_unequal, 0, 1e-3 * num_unequal)
        object.__setattr__(options, "seconds", -1.0)

    monkeypatch.setattr(exact_rows, "compare", compare)
    out = tmp_path / "out.json"

    exact_rows.main(["--out", str(out), "--seconds", "60"])

    result = json.loads(out.read_text())
    assert (result["verdict"], len(result["facts"]["comparisons"])) == (verdict, 1)
