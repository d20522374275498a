"""Every input of `specdec`: what is taken, what is refused, and that the refusal tells enough."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.errors import InvalidRequestError, Status, UnsupportedError
from specdec.serving.request import GenerationRequest, RequestLimits, parse_request

LIMITS = RequestLimits(vocab_size=1000, max_draft_len=16, drafters=("lookup", "draft"))
INT32_MAX = 2**31 - 1
TYPES = {
    "INT32": np.int32,
    "UINT64": np.uint64,
    "FP32": np.float32,
    "BOOL": np.bool_,
    "STRING": np.object_,
}
SCALARS = {
    "text_input": "STRING",
    "messages": "STRING",
    "max_tokens": "INT32",
    "min_tokens": "INT32",
    "stream": "BOOL",
    "temperature": "FP32",
    "top_p": "FP32",
    "min_p": "FP32",
    "top_k": "INT32",
    "repetition_penalty": "FP32",
    "presence_penalty": "FP32",
    "frequency_penalty": "FP32",
    "seed": "UINT64",
    "random_seed": "UINT64",
    "end_id": "INT32",
    "pad_id": "INT32",
    "return_log_probs": "BOOL",
    "exclude_input_in_output": "BOOL",
    "num_draft_tokens": "INT32",
    "drafter": "STRING",
    "verification": "STRING",
    "task": "STRING",
    "tenant": "STRING",
    "prediction": "STRING",
    "deadline_ms": "INT32",
    "return_perf_metrics": "BOOL",
}
LISTS = {"input_ids": "INT32", "stop_words": "STRING", "bad_words": "STRING"}


def array(name, value):
    """Return the array that Triton hands over for an input of this name."""
    values = list(value) if name in LISTS else [value]
    encoded = [item.encode() if isinstance(item, str) else item for item in values]
    return np.asarray(encoded, dtype=TYPES[(SCALARS | LISTS)[name]])


def parse(**inputs):
    """Parse a request, with a prompt if none of the inputs is one."""
    if not inputs.keys() & {"text_input", "messages", "input_ids"}:
        inputs["text_input"] = "x"
    return parse_request({name: array(name, inputs[name]) for name in inputs}, LIMITS)


def test_defaults_are_the_documented_ones():
    """A prompt alone is a greedy request of 256 tokens that speculates as the server likes."""
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
        drafter="auto",
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
        ("stream", True, "stream", True),
        ("seed", 2**64 - 1, "seed", 2**64 - 1),
        ("random_seed", 0, "seed", 0),
        ("stop_words", ["a", "", "ß"], "stop_words", ("a", "ß")),
        ("end_id", 0, "end_id", 0),
        ("end_id", 999, "end_id", 999),
        ("exclude_input_in_output", False, "exclude_input_in_output", False),
        ("num_draft_tokens", 0, "num_draft_tokens", 0),
        ("num_draft_tokens", 16, "num_draft_tokens", 16),
        *[("drafter", name, "drafter", name) for name in ("auto", "none", "lookup", "draft")],
        ("task", "t" * 64, "task", "t" * 64),
        ("task", "", "task", "default"),
        ("tenant", "", "tenant", None),
        ("deadline_ms", 1, "deadline_ms", 1),
        ("return_perf_metrics", True, "return_perf_metrics", True),
        ("input_ids", [0, 999], "input_ids", (0, 999)),
        ("text_input", "\n", "text_input", "\n"),
    ],
)
def test_values_at_the_limits_are_taken(name, value, field, parsed):
    """The ranges of the documentation include their ends."""
    assert getattr(parse(**{name: value}), field) == parsed


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
    "pad_id": 5,
}


@pytest.mark.parametrize(("name", "value"), NEUTRAL.items())
def test_what_leaves_greedy_text_alone_is_taken(name, value):
    """Clients that always send every parameter are served if the values change nothing."""
    assert parse(**{name: value}) == parse()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.5),
        ("temperature", 10.0),
        ("repetition_penalty", 1.1),
        ("presence_penalty", -2.0),
        ("frequency_penalty", 2.0),
        ("min_tokens", 1),
        ("bad_words", ["x"]),
        ("return_log_probs", True),
        ("prediction", "x"),
        ("verification", "typical"),
    ],
)
def test_what_is_not_served_yet_is_refused_by_name(name, value):
    """A documented feature that is missing is `unsupported`, never silently ignored."""
    with pytest.raises(UnsupportedError, match=name) as caught:
        parse(**{name: value})

    assert str(caught.value).startswith("unsupported: ")
    assert caught.value.status is Status.UNSUPPORTED


NAN, INF = float("nan"), float("inf")
LOW, HIGH = -(2**31), INT32_MAX

# (input, value, what the message must hold: the limit that was missed and the value given)
REFUSED = [
    *[("max_tokens", value, ("from 1 to", str(value))) for value in (0, -1, LOW)],
    *[("min_tokens", value, ("from 0 to", str(value))) for value in (-1, LOW)],
    *[("top_k", value, ("from 0 to", str(value))) for value in (-1, LOW)],
    *[("end_id", value, ("from 0 to 999", str(value))) for value in (-1, 1000, LOW, HIGH)],
    *[("num_draft_tokens", value, ("from 0 to 16", str(value))) for value in (-1, 17, LOW, HIGH)],
    *[("deadline_ms", value, ("from 1 to", str(value))) for value in (0, -5, LOW)],
    *[("temperature", value, ("from 0 to 10", "given")) for value in (-0.1, 10.5, 3e38)],
    *[("top_p", value, ("above 0 to 1", "given")) for value in (0.0, -1.0, 1.01)],
    *[("min_p", value, ("from 0 to 1", "given")) for value in (-0.1, 1.5)],
    *[("repetition_penalty", value, ("above 0", "given")) for value in (0.0, -1.0)],
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
    *[("drafter", value, ("auto, none, lookup, draft", repr(value))) for value in ("", "Draft")],
    *[(name, "t" * 65, ("64", "65")) for name in ("task", "tenant")],
    ("text_input", "", ("at least 1", "given 0")),
    ("input_ids", [], ("at least 1", "given 0")),
    *[("input_ids", [1, value, 2], ("from 0 to 999", str(value))) for value in (-1, 1000, HIGH)],
]


@pytest.mark.parametrize(("name", "value", "told"), REFUSED)
def test_value_out_of_range_names_limit_and_value(name, value, told):
    """Nothing is clamped: the error is the client's, names the input, its limit and the value."""
    with pytest.raises(InvalidRequestError) as caught:
        parse(**{name: value})

    message = str(caught.value)
    assert message.startswith("invalid_request: ")
    assert caught.value.status is Status.INVALID_ARG
    for part in (name, *told):
        assert part in message


@pytest.mark.parametrize(
    ("names", "given"),
    [
        ((), "none"),
        (("text_input", "messages"), "text_input, messages"),
        (("text_input", "messages", "input_ids"), "text_input, messages, input_ids"),
    ],
)
def test_exactly_one_prompt(names, given):
    """No prompt, or several, is refused with what was given."""
    prompts = {"text_input": "x", "messages": "[]", "input_ids": [1]}
    arrays = {name: array(name, prompts[name]) for name in names}

    with pytest.raises(InvalidRequestError, match=f"exactly one of .* given: {given}$"):
        parse_request(arrays, LIMITS)


BAD_MESSAGES = {
    "empty": "",
    "no JSON": "[",
    "no list": '{"role": "user", "content": "x"}',
    "no message": "[]",
    "no object": '["x"]',
    "no role": '[{"content": "x"}]',
    "no content": '[{"role": "user"}]',
    "null content": '[{"role": "user", "content": null}]',
    "parts": '[{"role": "user", "content": [{"type": "text", "text": "x"}]}]',
    "numbers": '[{"role": 1, "content": 2}]',
    "second is wrong": '[{"role": "user", "content": "x"}, 7]',
    "too deep": "[" * 100_000,
    "endless number": "[" + "9" * 5_000 + "]",
    "half a surrogate pair": '[{"role": "user", "content": "\\ud83d"}]',
    "half a surrogate pair in the role": '[{"role": "\\ude80", "content": "x"}]',
}


@pytest.mark.parametrize("text", BAD_MESSAGES.values(), ids=BAD_MESSAGES.keys())
def test_broken_messages_are_the_clients_mistake(text):
    """Whatever is wrong with the JSON or in it is `invalid_request` about messages."""
    with pytest.raises(InvalidRequestError, match="^invalid_request: messages"):
        parse(messages=text)


def test_messages_arrive_as_they_were_sent():
    """Roles, contents and other keys reach the chat template; a surrogate pair is a character."""
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "🚀", "name": "n"}]

    assert parse(messages=json.dumps(messages)).messages == tuple(messages)


@pytest.mark.parametrize("name", [name for name in SCALARS if SCALARS[name] == "STRING"])
def test_bytes_that_are_no_text(name):
    """Bytes that are not UTF-8 are refused by name."""
    arrays = {"text_input": array("text_input", "x")}
    if name == "messages":
        arrays = {}
    arrays[name] = np.asarray([b"\xff\xfe"], dtype=np.object_)

    with pytest.raises(InvalidRequestError, match=f"{name} must be UTF-8"):
        parse_request(arrays, LIMITS)


@given(
    st.dictionaries(
        st.sampled_from([name for name in SCALARS if SCALARS[name] == "STRING"]),
        st.one_of(st.binary(max_size=20), st.text(max_size=20).map(str.encode)),
    )
)
def test_strings_never_surprise(inputs):
    """Any bytes in any string input give a request or an error of ours, nothing else."""
    arrays = {name: np.asarray([value], dtype=np.object_) for name, value in inputs.items()}

    try:
        parse_request(arrays, LIMITS)
    except (InvalidRequestError, UnsupportedError) as error:
        assert error.status in {Status.INVALID_ARG, Status.UNSUPPORTED}


@given(
    st.dictionaries(
        st.sampled_from([name for name in SCALARS if SCALARS[name] in {"INT32", "FP32"}]),
        st.one_of(
            st.integers(LOW, HIGH), st.floats(width=32), st.sampled_from([0, 1, -1, LOW, HIGH])
        ),
    )
)
def test_numbers_never_surprise(inputs):
    """Any numbers give a request whose fields are in range, or an error of ours."""
    arrays = {"text_input": array("text_input", "x")}
    for name, value in inputs.items():
        kind = TYPES[SCALARS[name]]
        whole = kind is np.int32
        if whole and not isinstance(value, int):
            continue
        arrays[name] = np.asarray([value], dtype=kind)

    try:
        request = parse_request(arrays, LIMITS)
    except (InvalidRequestError, UnsupportedError):
        return
    assert request.max_tokens >= 1
    assert request.num_draft_tokens is None or 0 <= request.num_draft_tokens <= 16
