"""The sampling parameters in an engine call: the engine reads what the orchestrator sends."""

from dataclasses import replace

import numpy as np
import pytest

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.constraints.guide import Guide
from specdec.engines.wire import contract
from specdec.engines.wire.engine_call import parse_call
from specdec.engines.wire.sampling_inputs import Sampling, sampling_inputs
from specdec.errors import InvalidRequestError

BASE = {
    "input_ids": np.arange(10, dtype=np.int32),
    "input_lengths": np.asarray([10], dtype=np.int32),
    "request_output_len": np.asarray([4], dtype=np.int32),
}
BOTH = frozenset(contract.REQUIRED_OUTPUTS)


def sent(sampling, num_context=10):
    """Return the arrays by name as the engine model sees them, without their batch dimension."""
    return {name: array[0] for name, array in sampling_inputs(sampling, num_context)}


@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        SamplingParams(temperature=0.5, seed=2**64 - 1),
        SamplingParams(temperature=1.5, top_k=7, top_p=0.75, min_p=0.25),
        SamplingParams(repetition_penalty=1.5, presence_penalty=-2.0, frequency_penalty=0.5),
        SamplingParams(min_tokens=3, bad_words=((5,), (6, 7), (8,))),
        SamplingParams(logit_bias=((0, 0.5), (31, -100.0))),
        SamplingParams(guide=Guide("json_schema", '{"const": "é"}')),
        SamplingParams(guide=Guide("json")),
    ],
)
def test_engine_reads_the_parameters_that_were_sent(params):
    """Every parameter survives the contract's tensors; defaults are not sent."""
    sampling = Sampling(params, num_prompt_tokens=8, takes_our_inputs=True, padded_vocab_size=32)
    arrays = sent(sampling)

    task = parse_call("r", BASE | arrays, BOTH).task

    assert task.params == params
    assert task.num_prompt_tokens == (8 if params.looks_back else 0)


def test_without_a_prompt_length_the_guide_begins_after_the_input():
    """NVIDIA's backend has no such input."""
    kind = np.asarray([b"regex"], dtype=np.object_)
    arrays = {contract.GUIDE_TYPE: kind, contract.GUIDE: np.asarray([b"a+"], dtype=np.object_)}

    assert parse_call("r", BASE | arrays, BOTH).task.num_prompt_tokens == 10


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (b"yaml", b"x", "must be one of json, json_schema, regex"),
        (b"regex", b"\xff", "guided_decoding_guide must be a UTF-8 text"),
    ],
)
def test_wrong_guide_is_refused(kind, text, message):
    """Whether it can be compiled is found out later."""
    given = {contract.GUIDE_TYPE: kind, contract.GUIDE: text}
    arrays = {name: np.asarray([value], dtype=np.object_) for name, value in given.items()}
    with pytest.raises(InvalidRequestError, match=message):
        parse_call("r", BASE | arrays, BOTH)


def test_a_stream_with_a_guide_needs_an_end_token():
    """Free text would follow the end of the guide."""
    given = {contract.GUIDE_TYPE: b"regex", contract.GUIDE: b"a"}
    arrays = {name: np.asarray([value], dtype=np.object_) for name, value in given.items()}
    with pytest.raises(InvalidRequestError, match="needs an end_id"):
        parse_call("r", BASE | arrays | {contract.STREAMING: np.asarray([True])}, BOTH)


def test_greedy_call_has_one_sampling_tensor():
    """A default call stays small."""
    assert list(sent(Sampling())) == ["runtime_top_k"]


@pytest.mark.parametrize("verification", ["off", "rejection"])
def test_engine_without_noise_by_position_gets_a_seed_for_each_call(verification):
    """With one seed it would draw with the same noise in each call.

    The same call gets the same seed again. Our own engines get the request's seed.
    """
    params = SamplingParams(temperature=0.5, seed=11)
    foreign = Sampling(params, verification=verification)

    seeds = [sent(foreign, num)["seed"].item() for num in (10, 11, 26, 10)]

    assert len(set(seeds)) == 3
    assert seeds[0] == seeds[-1]
    ours = Sampling(params, takes_our_inputs=True, verification="off")
    assert sent(ours, 26)["seed"].item() == params.seed


def test_min_tokens_of_a_round_is_what_is_left():
    """An engine without `prompt_length` counts from the end of its input, as NVIDIA's does."""
    sampling = Sampling(SamplingParams(min_tokens=5), num_prompt_tokens=8)

    assert sent(sampling, num_context=10)["min_tokens"].tolist() == [3]
    assert sent(sampling, num_context=20)["min_tokens"].tolist() == [0]
    task = parse_call("r", BASE | sent(sampling), BOTH).task
    assert task.params.min_tokens - task.num_prompt_tokens == 10 + 3


def test_old_engines_get_the_old_names():
    """TensorRT-LLM 0.20 renamed two inputs."""
    params = SamplingParams(temperature=0.5, min_tokens=5, seed=3)

    old = sent(Sampling(params, num_prompt_tokens=8, has_old_names=True))
    new = sent(Sampling(params, num_prompt_tokens=8))

    assert old.keys() - new.keys() == {"min_length", "random_seed"}
    assert new.keys() - old.keys() == {"min_tokens", "seed"}
    assert (
        parse_call("r", BASE | old, BOTH).task.params
        == parse_call("r", BASE | new, BOTH).task.params
    )


def test_defaults_are_those_of_the_backend():
    """Without parameters a call is greedy; with only top-p or top-k the temperature is 1."""
    assert parse_call("r", BASE, BOTH).task.params.is_greedy
    nucleus = parse_call("r", BASE | {"runtime_top_p": np.asarray([0.5], np.float32)}, BOTH)
    assert nucleus.task.params == replace(GREEDY, temperature=1.0, top_p=0.5)
    few = parse_call("r", BASE | {"runtime_top_k": np.asarray([3], np.int32)}, BOTH)
    assert few.task.params == replace(GREEDY, temperature=1.0, top_k=3)


def test_malformed_word_list_is_refused():
    """The offsets in a word list must rise and stay within its tokens."""
    broken = np.asarray([[5, 6], [2, 1]], dtype=np.int32)

    with pytest.raises(InvalidRequestError, match=r"bad_words_list.*\[2, 1\]"):
        parse_call("r", BASE | {"bad_words_list": broken}, BOTH)
