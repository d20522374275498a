"""Tests of the conversion to vLLM's sampling parameters."""

import json

import numpy as np
import pytest
from llguidance import LLMatcher, grammar_from

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.batch_engines.vllm.sampling import sampling_arguments
from specdec.constraints.grammars import WHITE_SPACE as SPACE
from specdec.constraints.guide import Guide
from specdec.errors import UnsupportedError
from specdec.torch_engine.task import Task
from tests.unit.constraints.small_vocabulary import tokenizer
from tests.unit.constraints.test_compiler import BYTES


def task(params=GREEDY, **fields):
    """Return a task with these sampling parameters."""
    ids = np.asarray([1, 2, 3], dtype=np.int32)
    return Task("id:target:1", ids, 16, params=params, **fields)


def test_greedy_request_has_no_randomness():
    """It has no temperature and no seed, and only its own end token ends it."""
    found = sampling_arguments(task(end_id=2), {"drafter": "auto"}, has_drafts=True)
    assert (found["temperature"], found["seed"]) == (0.0, None)
    assert (found["ignore_eos"], found["stop_token_ids"]) == (True, [2])
    assert found["extra_args"] == {"specdec": {"id": "id:target:1", "drafter": "auto"}}


def test_every_sampling_parameter_reaches_vllm():
    """Each goes by vLLM's name for it."""
    params = SamplingParams(
        temperature=0.7,
        top_k=5,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        min_tokens=4,
        bad_texts=("no",),
        logit_bias=((7, -1.5),),
        seed=2**64 - 1,
    )
    found = sampling_arguments(
        task(params, num_prompt_tokens=3, wants_log_probs=True), {}, has_drafts=False
    )
    expected = {
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "min_tokens": 4,
        "bad_words": ["no"],
        "logit_bias": {7: -1.5},
        "seed": 2**63 - 1,
        "logprobs": 0,
        "stop_token_ids": [],
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("num_prompt", [0, 1, 3])
def test_min_tokens_count_from_the_end_of_the_prompt(num_prompt):
    """The contract's count includes the tokens of input_ids after the prompt; vLLM's does not."""
    params = SamplingParams(temperature=1.0, min_tokens=5)
    found = sampling_arguments(task(params, num_prompt_tokens=num_prompt), {}, has_drafts=True)
    assert found["min_tokens"] == 5 - (3 - num_prompt)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"params": SamplingParams(bad_words=((1, 2),))}, "bad_words_list"),
        ({"wants_logits": True}, "return_generation_logits"),
        ({"params": SamplingParams(temperature=1.0, min_p=0.1)}, "min_p"),
        ({"params": SamplingParams(logit_bias=((7, 1.0),))}, "logit_bias"),
    ],
)
def test_what_vllm_lacks_is_refused_by_name(fields, name):
    """The client learns which parameter to leave out."""
    with pytest.raises(UnsupportedError, match=name):
        sampling_arguments(task(**fields), {}, has_drafts=True)


@pytest.mark.parametrize(
    ("guide", "expected"),
    [
        (Guide("json"), {"json": {"x-guidance": SPACE, "type": ["object", "array"]}}),
        (Guide("json_schema", '{"const": 1}'), {"json": {"x-guidance": SPACE, "const": 1}}),
        (Guide("json_schema", "true"), {"json": {"x-guidance": SPACE}}),
        (Guide("regex", "a+"), {"regex": "a+"}),
        (Guide("ebnf_grammar", 'start: "a"'), {"grammar": 'start: "a"'}),
    ],
)
def test_guide_reaches_vllm(guide, expected):
    """Its white space in JSON is ours."""
    params = SamplingParams(guide=guide)
    found = sampling_arguments(task(params, end_id=2), {}, has_drafts=True)
    assert found["structured_outputs"] == expected


TAG = {
    "begin": '<call>{"name": "add", "arguments": ',
    "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "end": "}</call>",
}


@pytest.mark.parametrize(
    ("text", "num_allowed"),
    [
        ('So: <call>{"name": "add", "arguments": {"a": 1}}</call>', None),
        ("no call at all", None),
        ('<call>{"name": "add", "arguments": {"a": "x"}}</call>', 41),
        ('<call>{"evil": 1}</call>', 8),
    ],
)
def test_tags_constrain_what_is_in_them(text, num_allowed):
    """The argument is compiled as vLLM does; the text is given byte by byte."""
    guide = Guide("structural_tag", json.dumps({"triggers": ["<call>"], "structures": [TAG]}))
    found = sampling_arguments(task(SamplingParams(guide=guide)), {}, has_drafts=False)
    (kind, argument), *_ = found["structured_outputs"].items()
    matcher = LLMatcher(tokenizer(BYTES), grammar_from(kind, argument), log_level=0)
    assert not matcher.is_error()
    size = len(text)
    assert matcher.validate_tokens(list(text.encode())) == (num_allowed or size)
