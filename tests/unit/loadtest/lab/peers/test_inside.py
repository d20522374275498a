"""Tests of the bench of our drafters inside vLLM, without servers."""

import json
from pathlib import Path

import pytest

from specdec.loadtest.lab.peers.inside import OUR_ARMS, VLLM_ARMS, vllm_command
from specdec.loadtest.lab.peers.inside_report import figures_and_tables
from specdec.loadtest.lab.peers.measuring import PeerMeasurement, PeerRun
from specdec.loadtest.lab.peers.protocol import Answer, Reply
from specdec.loadtest.lab.peers.vllm_server import events_in
from specdec.loadtest.lab.peers.weights import PairPaths

PARAMETERS = {
    "max_seq_len": "2048",
    "max_num_sequences": "64",
    "dtype": "bfloat16",
    "vllm_engine_args": json.dumps({"block_size": 32}),
}
PATHS = PairPaths(Path("/target"), Path("/draft"), Path("/head"))


def options(mode):
    """Return the options of vLLM's server in a mode, by name."""
    words = vllm_command(Path("python"), mode, 4, PATHS, PARAMETERS)
    return dict(zip(words[3::2], words[4::2], strict=True))


def test_servers_of_vllm_have_the_limits_of_ours():
    """Otherwise they would not be comparable."""
    found = options("plain")
    assert found["--block-size"] == "32"
    assert found["--max-model-len"] == "2048"
    assert "--speculative-config" not in found


@pytest.mark.parametrize(("mode", "model"), [("eagle3", "/head"), ("draft_model", "/draft")])
def test_models_that_draft_are_passed_to_vllm(mode, model):
    """They are the same weights as ours."""
    given = json.loads(options(mode)["--speculative-config"])
    assert given == {"method": mode, "model": model, "num_speculative_tokens": 4}


def test_events_are_read_across_the_parts_of_a_stream():
    """A part may end anywhere."""
    parts = [b'data: {"a"', b": 1}\n\ndata: ", b'{"a": 2}\n\n', b"data: [DONE]\n\n"]
    assert [each["a"] for each in events_in(parts)] == [1, 2]


def test_figures_are_ratios_over_the_same_questions():
    """The best of vLLM's arms is found by its rate."""
    run = PeerRun(1)
    off, plain, ngram = OUR_ARMS[0], VLLM_ARMS[0], VLLM_ARMS[1]
    for arm, seconds, tokens in ((off, 2.0, (1, 2)), (plain, 1.0, (1, 2)), (ngram, 0.5, (1, 3))):
        for question in ("a", "b"):
            reply = Reply((Answer(tokens, 0.1),), seconds)
            run.measurements.append(PeerMeasurement(arm, 1, question, reply))
    facts, table = figures_and_tables(run, [off], [plain, ngram], [1])
    by_arm = {each.arm: each for each in facts["arms"]}
    assert by_arm[off.label].over_plain.middle == pytest.approx(0.5)
    assert by_arm[off.label].over_best.middle == pytest.approx(0.25)
    assert by_arm[ngram.label].num_as_plain == 0
    assert by_arm[off.label].num_as_plain == by_arm[off.label].num_compared == 2
    assert all(arm.label in table for arm in (off, plain, ngram))
