"""The steps about the engine: counts of bytes and parameters, goals, and parts that fail."""

import json
from dataclasses import replace

import pytest
import torch

from specdec.loadtest.gpu.decoders.passes import StepTime
from specdec.loadtest.gpu.decoders.shapes import SHAPES, random_weights
from specdec.loadtest.gpu.step_report import Verdict
from specdec.loadtest.gpu.steps import engine_limits, exact_rows
from specdec.loadtest.gpu.steps.engine_limits import Measured, verdict_of
from specdec.loadtest.pass_bytes import num_cache_bytes, num_layer_parameters, num_weight_bytes

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["tiny", "draft"])
def test_byte_limit_counts_the_tensors_that_a_pass_reads(name):
    """They are all matrices of the layers and the head, not the embedding table and the norms."""
    weights = random_weights(SHAPES[name], CPU, torch.bfloat16)
    matrices = [weights.head_rows]
    for layer in weights.layers:
        matrices += [layer.qkv, layer.output, layer.gate, layer.up, layer.down]

    assert num_weight_bytes(SHAPES[name], torch.bfloat16) == sum(each.nbytes for each in matrices)


def test_large_shapes_are_those_of_llama():
    """Parameters that a pass reads and KV cache bytes per token follow the published configs."""
    sizes = {"1b": 1_235_746_816, "8b": 7_504_658_432}

    assert {name: num_weight_bytes(SHAPES[name], torch.bfloat16) // 2 for name in sizes} == sizes
    assert num_cache_bytes(SHAPES["8b"], torch.bfloat16, 1) == 128 * 1024


def test_slice_of_70b_is_an_eighth():
    """Eight ranks together have the matrices of the whole model; each also has all norms."""
    config = SHAPES["70b_slice"]
    whole = replace(config, intermediate_size=28672, num_heads=64, num_kv_heads=8)

    assert 8 * num_layer_parameters(config) == num_layer_parameters(whole) == 68_451_041_280


def measured(**us):
    """Return measurements of 8B, with a byte limit of 100 µs each.

    The arguments are times in µs: `b1` and `b8` of a plain step at batch 1 and 8, `wide` of 8 rows
    at batch 1.
    """
    step = StepTime(1, 0, 100.0, 900.0, us["b1"], 1.0)
    steps = [
        step,
        replace(step, num_sequences=8, graph_us=us["b8"]),
        replace(step, num_draft_tokens=7, graph_us=us["wide"]),
    ]
    return Measured(steps={"8b": steps})


@pytest.mark.parametrize(
    ("us", "verdict"),
    [
        ({"b1": 125.0, "b8": 125.0, "wide": 137.5}, Verdict.PASSED),
        ({"b1": 126.0, "b8": 125.0, "wide": 126.0}, Verdict.MISSED),
        ({"b1": 125.0, "b8": 126.0, "wide": 125.0}, Verdict.MISSED),
        ({"b1": 100.0, "b8": 100.0, "wide": 111.0}, Verdict.MISSED),
    ],
)
def test_goals_are_met_up_to_their_borders(us, verdict):
    """A step may take 1.25 times the byte limit at batch 1 and 8, and 8 rows 1.1 times one row."""
    assert (
        verdict_of(measured(**us).ratios(), {}, is_timed_out=False, is_rehearsal=False) is verdict
    )


def test_failed_part_outweighs_goals_and_a_timeout_is_no_pass():
    """This holds even if every measured goal is met."""
    ratios = measured(b1=100.0, b8=100.0, wide=100.0).ratios()

    assert (
        verdict_of(ratios, {"chained": "x"}, is_timed_out=True, is_rehearsal=True) is Verdict.FAILED
    )
    assert verdict_of(ratios, {}, is_timed_out=True, is_rehearsal=False) is Verdict.TIMED_OUT


def run(step, tmp_path):
    """Run a step's rehearsal; return its exit status and its result file."""
    out = tmp_path / "out.json"
    status = step.main(["--out", str(out), "--seconds", "60", "--rehearse"])
    return status, json.loads(out.read_text())


@pytest.fixture
def small(monkeypatch):
    """Reduce the rehearsal to the shape `tiny` at batch 1 and 32."""
    sizes = replace(engine_limits.REHEARSED, steps=(("tiny", (1, 32)),))
    monkeypatch.setattr(engine_limits, "REHEARSED", sizes)


def test_every_part_is_measured_above_its_limit(small, tmp_path, one_thread):
    """Steps, prompts, chained steps and transformers are; no pass beats reading its bytes."""
    status, result = run(engine_limits, tmp_path)

    facts = result["facts"]
    assert (status, result["verdict"]) == (0, "passed")
    steps = facts["steps"]["tiny"]
    assert [(each["num_sequences"], each["num_draft_tokens"]) for each in steps] == [
        (batch, k) for batch in (1, 32) for k in (0, 3, 7)
    ]
    assert all(0 < each["limit_us"] < min(each["launched_us"], each["graph_us"]) for each in steps)
    assert facts["prompts"]["tiny"]["num_tokens"] == 256
    assert len(facts["chained"]) == 6
    assert len(facts["transformers_tiny"]) == 4


def test_part_that_raises_does_not_stop_the_others(small, tmp_path, monkeypatch, one_thread):
    """A part raises if its shape does not fit into memory, for example."""
    monkeypatch.setattr(engine_limits, "chained_times", lambda *_: 1 / 0)

    status, result = run(engine_limits, tmp_path)

    assert (status, result["verdict"]) == (1, "failed")
    assert "ZeroDivisionError" in result["facts"]["errors"]["chained"]
    assert len(result["facts"]["transformers_tiny"]) == 4


def test_rows_are_compared_in_five_ways(tmp_path, one_thread):
    """The ways are: beside others, in wide passes, replayed and launched; all tokens are equal."""
    status, result = run(exact_rows, tmp_path)

    (comparisons,) = result["facts"]["comparisons"].values()
    assert (status, len(comparisons)) == (0, 5)
    assert not any(each["num_other_tokens"] for each in comparisons)
    assert sum(each["num_rows"] for each in comparisons) == 296


def test_row_that_depends_on_its_batch_fails_the_step(tmp_path, monkeypatch, one_thread):
    """One wrong row among hundreds is enough."""
    rows_of = exact_rows.Engine.rows_of

    def spoiled(self, requests, num_rows, **options):
        hidden = rows_of(self, requests, num_rows, **options)
        if len(requests) > 1:
            hidden[7, 0, 3] += 0.1
        return hidden

    monkeypatch.setattr(exact_rows.Engine, "rows_of", spoiled)

    assert run(exact_rows, tmp_path)[0] == 1
