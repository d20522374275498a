"""Tests of the conversion of calls to TensorRT-LLM's sampling parameters."""

import json

import numpy as np
import pytest

from specdec.acceptance.sampling import SamplingParams
from specdec.batch_engines.tensorrt_llm.sampling import sampling_arguments
from specdec.constraints.grammars import WHITE_SPACE
from specdec.constraints.guide import Guide
from specdec.errors import UnsupportedError
from specdec.torch_engine.task import Task

VOCAB = 10


def arguments(release=(1, 3), params=None, **fields):
    """Return the arguments for a task with a prompt of three tokens."""
    ids = np.asarray([1, 2, 3], dtype=np.int32)
    task = Task("id", ids, 8, params=params or SamplingParams(), num_prompt_tokens=3, **fields)
    return sampling_arguments(task, release, VOCAB)


def test_greedy_request():
    """Without parameters of sampling, every release decodes greedily."""
    assert arguments(end_id=2) == {
        "max_tokens": 8,
        "detokenize": False,
        "logprobs": None,
        "end_id": 2,
        "pad_id": 2,
    }
    assert arguments()["ignore_eos"]


def test_sampled_request():
    """top_p is always given, without which some releases decode greedily."""
    params = SamplingParams(temperature=0.7, top_k=5, seed=2**63 + 5, min_p=0.1, min_tokens=4)
    found = arguments(params=params, wants_log_probs=True)
    names = ("temperature", "top_k", "top_p", "seed", "min_p", "min_tokens", "logprobs")
    assert {name: found[name] for name in names} == {
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 1.0,
        "seed": 5,
        "min_p": 0.1,
        "min_tokens": 4,
        "logprobs": 1,
    }


def test_bias_becomes_a_tensor():
    """It has a value for each token of the vocabulary."""
    found = arguments(params=SamplingParams(logit_bias=((3, -2.5),)))["embedding_bias"]
    assert found.tolist() == [0, 0, 0, -2.5, 0, 0, 0, 0, 0, 0]


TAGS = {
    "triggers": ["<a>"],
    "structures": [{"begin": "<a>", "schema": {"type": "integer"}, "end": "</a>"}],
}


@pytest.mark.parametrize(
    ("guide", "name", "part"),
    [
        (Guide("json"), "json", {"type": ["object", "array"]}),
        (Guide("json_schema", '{"type": "integer"}'), "json", {"type": "integer"}),
        (Guide("regex", "a+"), "regex", "a+"),
        (Guide("ebnf_grammar", 'root ::= "a"'), "grammar", "start:"),
        (Guide("structural_tag", json.dumps(TAGS)), "grammar", "%json"),
    ],
)
def test_a_guide_becomes_one_that_llguidance_takes(guide, name, part):
    """TensorRT-LLM gives it grammars in Lark's form; JSON has the white space of our engines."""
    found = arguments(params=SamplingParams(guide=guide), end_id=2)["guided_decoding"]
    assert list(found) == [name]
    if name == "json":
        assert found[name] == part | {"x-guidance": WHITE_SPACE}
    else:
        assert part in found[name]


@pytest.mark.parametrize(
    ("release", "fields", "name"),
    [
        ((1, 0), {"temperature": 0.5}, "temperature"),
        ((1, 0), {"min_tokens": 1}, "min_tokens"),
        ((1, 0), {"logit_bias": ((1, 1.0),)}, "logit_bias"),
        ((1, 2), {"temperature": 1.0, "min_p": 0.1}, "min_p"),
        ((1, 2), {"repetition_penalty": 1.1}, "repetition_penalty"),
        ((1, 2), {"presence_penalty": 0.5}, "presence_penalty"),
        ((1, 2), {"frequency_penalty": 0.5}, "frequency_penalty"),
        ((1, 3), {"bad_texts": ("x",)}, "bad words"),
        ((1, 3), {"guide": Guide("json"), "min_tokens": 1}, "min_tokens"),
    ],
)
def test_what_the_release_lacks_is_refused_by_name(release, fields, name):
    """Ignoring it would change the answer without a word."""
    with pytest.raises(UnsupportedError, match=name):
        arguments(release, SamplingParams(**fields))
