"""Every input of the model `specdec`: accepted values, refused values, and the error texts."""

from dataclasses import replace

import pytest

from specdec.acceptance.sampling import SamplingParams
from specdec.drafting.asked import AskedDrafter
from specdec.errors import InvalidRequestError, Status, UnsupportedError
from specdec.serving.request.request import (
    ALL_THAT_FITS,
    PROMPT_INPUTS,
    GenerationRequest,
    parse_request,
    with_max_tokens,
)
from tests.unit.serving.request_arrays import DRAFTERS, INT32_MAX, LIMITS, SCALARS, array, parse


def test_defaults_are_the_documented_ones():
    """A prompt alone is a greedy request of 256 tokens that leaves the drafter to the server."""
    assert parse(text_input="hello") == GenerationRequest(
        text_input="hello",
        messages=None,
        input_ids=None,
        max_tokens=256,
        stream=False,
        seed=None,
        stop_words=(),
        end_id=None,
        exclude_input_in_output=True,
        num_draft_tokens=None,
        drafter=AskedDrafter("auto"),
        task="default",
        tenant=None,
        deadline_ms=None,
        return_perf_metrics=False,
    )


@pytest.mark.parametrize(
    ("name", "value", "field", "parsed"),
    [
        ("max_tokens", 1, "max_tokens", 1),
        ("max_tokens", INT32_MAX, "max_tokens", INT32_MAX),
        ("max_tokens", -1, "max_tokens", ALL_THAT_FITS),
        ("ignore_eos", True, "ignore_eos", True),
        ("stop_token_ids", [5, 999, 5], "stop_token_ids", (5, 999)),
        ("skip_special_tokens", False, "skip_special_tokens", False),
        ("return_prompt_token_ids", True, "return_prompt_token_ids", True),
        ("stream", True, "stream", True),
        ("seed", 2**64 - 1, "seed", 2**64 - 1),
        ("random_seed", 0, "seed", 0),
        ("stop_words", ["a", "", "ß"], "stop_words", ("a", "ß")),
        ("end_id", 0, "end_id", 0),
        ("end_id", 999, "end_id", 999),
        ("exclude_input_in_output", False, "exclude_input_in_output", False),
        ("num_draft_tokens", 0, "num_draft_tokens", 0),
        ("num_draft_tokens", 16, "num_draft_tokens", 16),
        ("drafter", "none", "drafter", AskedDrafter("none")),
        ("drafter", "lookup", "drafter", AskedDrafter("lookup", DRAFTERS[:1])),
        ("task", "t" * 64, "task", "t" * 64),
        ("task", "", "task", "default"),
        ("tenant", "", "tenant", None),
        ("deadline_ms", 1, "deadline_ms", 1),
        ("return_perf_metrics", True, "return_perf_metrics", True),
        ("input_ids", [0, 999], "input_ids", (0, 999)),
        ("text_input", "\n", "text_input", "\n"),
    ],
)
def test_values_at_the_limits_are_accepted(name, value, field, parsed):
    """The documented ranges include their ends."""
    assert getattr(parse(**{name: value}), field) == parsed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("temperature", value) for value in (0.0, 10.0)],
        ("top_p", 1.0),
        *[("min_p", value) for value in (0.0, 1.0)],
        *[("repetition_penalty", value) for value in (0.01, 100.0)],
        *[("presence_penalty", value) for value in (-2.0, 2.0)],
        *[("frequency_penalty", value) for value in (-2.0, 2.0)],
    ],
)
def test_sampling_values_at_the_limits_are_accepted(name, value):
    """Clients send FP32, in which 0.01 is a little less than the limit 0.01."""
    assert getattr(parse(**{name: value}).sampling, name) == pytest.approx(value)


NEUTRAL = {
    "temperature": 0.0,
    "top_p": 1.0,
    "min_p": 1.0,
    "top_k": INT32_MAX,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": -0.0,
    "min_tokens": 0,
    "bad_words": [],
    "return_log_probs": False,
    "prediction": "",
    "verification": "exact",
    "logit_bias": "{}",
    "pad_id": 5,
}


@pytest.mark.parametrize(("name", "value"), NEUTRAL.items())
def test_parameters_that_change_nothing_are_accepted(name, value):
    """A client that always sends every parameter is served greedily if its values are neutral."""
    request = parse(**{name: value})

    assert request.sampling.is_greedy
    assert not request.sampling.looks_back
    assert not request.bad_words


def test_sampling_parameters_are_passed_on_unchanged():
    """Each of them is in the parsed request, from which the engines' calls are made."""
    given = {
        "temperature": 0.5,
        "top_k": 40,
        "top_p": 0.75,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "presence_penalty": -2.0,
        "frequency_penalty": 2.0,
        "min_tokens": 3,
    }

    bias = '{"7": -100, "0": 0.5}'
    request = parse(**given, bad_words=["x", "y"], logit_bias=bias, return_log_probs=True)

    assert request.sampling == SamplingParams(**given, logit_bias=((0, 0.5), (7, -100.0)))
    assert (request.bad_words, request.return_log_probs) == (("x", "y"), True)


NAN, INF = float("nan"), float("inf")
LOW, HIGH = -(2**31), INT32_MAX

# (input, value, parts of the message: the limit and the given value)
REFUSED = [
    ("max_tokens", 0, ("at least 1", "given 0")),
    *[("max_tokens", value, ("from -1 to", str(value))) for value in (-2, LOW)],
    ("verification", "magic", ("exact, rejection, block, typical", "'magic'")),
    *[("min_tokens", value, ("from 0 to 256", str(value))) for value in (-1, LOW, 257)],
    *[("top_k", value, ("from 0 to", str(value))) for value in (-1, LOW)],
    *[("end_id", value, ("from 0 to 999", str(value))) for value in (-1, 1000, LOW, HIGH)],
    *[("num_draft_tokens", value, ("from 0 to 16", str(value))) for value in (-1, 17, LOW, HIGH)],
    *[("deadline_ms", value, ("from 1 to", str(value))) for value in (0, -5, LOW)],
    *[("temperature", value, ("from 0 to 10", "given")) for value in (-0.1, 10.5, 3e38)],
    *[("top_p", value, ("from 0 to 1", "given")) for value in (-1.0, 1.01)],
    *[("min_p", value, ("from 0 to 1", "given")) for value in (-0.1, 1.5)],
    *[("repetition_penalty", value, ("0.01 to 100", "given")) for value in (0.0, 1e-38, 101.0)],
    *[
        (name, value, ("from -2 to 2", f"given {value:g}"))
        for name in ("presence_penalty", "frequency_penalty")
        for value in (-2.5, 2.5)
    ],
    *[
        (name, value, ("finite", f"given {value:g}"))
        for name in SCALARS
        if SCALARS[name] == "FP32"
        for value in (NAN, INF, -INF)
    ],
    ("drafter", "Draft", ("auto, none, lookup, draft", "joined by '+'", "'Draft'")),
    *[
        ("logit_bias", value, ("JSON object",))
        for value in (
            *("x", "[1]", '{"a": 1}', '{"1": "much"}', '{"1": null}', "[" * 10**4),
            *('{"1_0": 1}', '{"01": 1}', '{" 1": 1}', '{"١": 1}'),
        )
    ],
    *[("logit_bias", f'{{"{token}": 1}}', ("from 0 to 999", str(token))) for token in (-1, 1000)],
    *[
        ("logit_bias", f'{{"1": {bias}}}', ("-100 to 100", "given"))
        for bias in ("-100.5", "1e9", "NaN", "Infinity")
    ],
    *[(name, "t" * 65, ("64", "65")) for name in ("task", "tenant")],
    ("text_input", "", ("at least 1", "given 0")),
    ("input_ids", [], ("at least 1", "given 0")),
    *[("input_ids", [1, value, 2], ("from 0 to 999", str(value))) for value in (-1, 1000, HIGH)],
]


@pytest.mark.parametrize(("name", "value", "parts"), REFUSED)
def test_error_for_a_value_out_of_range_names_limit_and_value(name, value, parts):
    """No value is clamped. The client's error names the input, its limit and the value."""
    with pytest.raises(InvalidRequestError) as caught:
        parse(**{name: value})

    message = str(caught.value)
    assert message.startswith("invalid_request: ")
    assert caught.value.status is Status.INVALID_ARG
    for part in (name, *parts):
        assert part in message


@pytest.mark.parametrize(
    ("names", "given"),
    [
        ((), "none"),
        (("text_input", "messages"), "text_input, messages"),
        (("text_input", "messages", "input_ids"), "text_input, messages, input_ids"),
    ],
)
def test_exactly_one_prompt_is_required(names, given):
    """A request with no prompt, or with several, is refused; the error names those given."""
    prompts = {"text_input": "x", "messages": "[]", "input_ids": [1]}
    arrays = {name: array(name, prompts[name]) for name in names}

    with pytest.raises(InvalidRequestError, match=rf"exactly one of .* given {given}$"):
        parse_request(arrays, LIMITS)


@pytest.mark.parametrize("name", ["stop_words", "bad_words"])
def test_stop_and_bad_words_are_limited_in_number_and_length(name):
    """Each word costs time for every token that is drawn."""
    assert parse(text_input="x", **{name: ["x" * 256] * 256})
    with pytest.raises(InvalidRequestError, match=rf"{name} may have 256 texts; given 257"):
        parse(text_input="x", **{name: ["x"] * 257})
    with pytest.raises(InvalidRequestError, match=rf"{name}\[1\] may have 256 bytes; given 257"):
        parse(text_input="x", **{name: ["x", "x" * 257]})


def test_text_too_long_for_any_context_is_refused_unread():
    """Its size in bytes decides, in any field; the error gives limit and size, but not the text."""
    limits = replace(LIMITS, max_seq_len=10, max_text_bytes=100)
    for name, value in {
        "text_input": "x" * 101,
        "messages": "[" * 601,
        "prediction": "x" * 101,
        "drafter": "x" * 101,
    }.items():
        given = {name: value} if name in PROMPT_INPUTS else {name: value, "text_input": "x"}
        with pytest.raises(InvalidRequestError, match=f"{name} may have .*given {len(value)}"):
            parse_request({name: array(name, each) for name, each in given.items()}, limits)
    with pytest.raises(InvalidRequestError, match="input_ids may have 9 tokens; given 10"):
        parse_request({"input_ids": array("input_ids", [1] * 10)}, limits)
    assert (
        parse_request({"text_input": array("text_input", "x" * 100)}, limits).text_input
        == "x" * 100
    )


def test_two_names_of_the_seed_must_agree():
    """If they differed, one of them would be ignored silently."""
    assert parse(seed=5, random_seed=5).seed == 5
    with pytest.raises(InvalidRequestError, match="given 5 and 6"):
        parse(seed=5, random_seed=6)


def test_long_values_are_cut_in_errors():
    """The error names only the beginning of a value of 100,000 characters."""
    with pytest.raises(InvalidRequestError) as caught:
        parse(drafter="x" * 100_000)
    assert len(str(caught.value)) < 500


def test_top_p_of_zero_is_greedy():
    """OpenAI's clients write it for the most likely token."""
    sampling = parse(top_p=0.0, temperature=0.9).sampling
    assert sampling.is_greedy
    assert sampling.top_p == 1.0


def test_answer_that_may_fill_the_context_has_a_number_in_the_end():
    """It must have room for `min_tokens`."""
    request = parse(max_tokens=-1, min_tokens=5)
    assert with_max_tokens(request, 9).max_tokens == 9
    assert with_max_tokens(parse(max_tokens=3), 9).max_tokens == 3
    with pytest.raises(InvalidRequestError, match=r"min_tokens must be at most 4.*given 5"):
        with_max_tokens(request, 4)


def test_old_name_of_min_tokens():
    """NVIDIA's clients send `min_length`; two different values are refused."""
    assert parse(min_length=3).sampling.min_tokens == 3
    with pytest.raises(InvalidRequestError, match="min_tokens and min_length are the same"):
        parse(min_length=3, min_tokens=4)


@pytest.mark.parametrize("name", ["beam_width", "num_return_sequences", "lora_task_id"])
def test_inputs_of_nvidias_models_that_ask_for_something_are_refused(name):
    """They are never ignored silently."""
    with pytest.raises(UnsupportedError, match=f"{name} must be"):
        parse(**{name: 2})


def test_prompt_ends_in_one_way():
    """A continued message has no new turn after it."""
    assert not parse(continue_final_message=True).add_generation_prompt
    with pytest.raises(InvalidRequestError, match="add_generation_prompt must be false"):
        parse(continue_final_message=True, add_generation_prompt=True)


def test_top_log_probs_need_log_probs():
    """And they have a limit."""
    assert parse(num_top_log_probs=20, return_log_probs=True).num_top_log_probs == 20
    with pytest.raises(InvalidRequestError, match="num_top_log_probs must be 0 without"):
        parse(num_top_log_probs=1)
    with pytest.raises(InvalidRequestError, match="from 0 to 20; given 21"):
        parse(num_top_log_probs=21, return_log_probs=True)


@pytest.mark.parametrize("ids", [[1000], [-1]])
def test_stop_tokens_must_be_tokens(ids):
    """The error names the one that is none."""
    with pytest.raises(InvalidRequestError, match=r"stop_token_ids\[0\] must be a token from 0"):
        parse(stop_token_ids=ids)
