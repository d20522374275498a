"""Texts, JSON and arbitrary values in requests: each gives a request or an error of ours."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.errors import InvalidRequestError, UnsupportedError
from specdec.serving.request.request import ALL_THAT_FITS, parse_request
from tests.unit.serving.request_arrays import INT32_MAX, LIMITS, SCALARS, TYPES, array, parse

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

MESSAGES = '[{"role": "user", "content": "x"}]'


@pytest.mark.parametrize("text", BAD_MESSAGES.values(), ids=BAD_MESSAGES.keys())
def test_malformed_messages_are_the_clients_error(text):
    """Any fault in the JSON or in its contents gives `invalid_request` about `messages`."""
    with pytest.raises(InvalidRequestError, match=r"^invalid_request: messages"):
        parse(messages=text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "{}", "[]", "[5]", '[{"function": 5}]', '[{"function": {"name": 5}}]'),
        *('[{"function": {"name": "f", "parameters": []}}]', '[{"type": "function"}]'),
    ],
)
def test_malformed_tools_are_the_clients_error(text):
    """Any fault gives `invalid_request` about `tools`; so do tools without messages."""
    with pytest.raises(InvalidRequestError, match=r"^invalid_request: tools"):
        parse(messages=MESSAGES, tools=text)
    with pytest.raises(InvalidRequestError, match=r"^invalid_request: tools need messages"):
        parse(text_input="x", tools='[{"function": {"name": "f"}}]')


@pytest.mark.parametrize("calls", ["5", "[5]", '[{"function": {"name": "f", "arguments": 5}}]'])
def test_malformed_calls_are_the_clients_error(calls):
    """The error names the call."""
    text = f'[{{"role": "assistant", "content": "", "tool_calls": {calls}}}]'
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].tool_calls"):
        parse(messages=text)


def test_tools_arrive_as_they_were_sent():
    """They are JSON objects."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert parse(messages=MESSAGES, tools=json.dumps(tools)).tools == tuple(tools)


def test_messages_arrive_as_they_were_sent():
    """Roles, contents and other keys reach the chat template; a surrogate pair is one character."""
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "🚀", "name": "n"}]

    assert parse(messages=json.dumps(messages)).messages == tuple(messages)


@pytest.mark.parametrize("name", [name for name in SCALARS if SCALARS[name] == "STRING"])
def test_bytes_that_are_not_utf8_are_refused(name):
    """The error names the input."""
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
def test_any_strings_give_a_request_or_our_error(inputs):
    """Any bytes in any string input give a request, InvalidRequestError or UnsupportedError."""
    arrays = {name: np.asarray([value], dtype=np.object_) for name, value in inputs.items()}

    with suppress(InvalidRequestError, UnsupportedError):
        parse_request(arrays, LIMITS)


@given(
    st.dictionaries(
        st.sampled_from([name for name in SCALARS if SCALARS[name] in {"INT32", "FP32"}]),
        st.one_of(
            st.integers(-(2**31), INT32_MAX),
            st.floats(width=32),
            st.sampled_from([0, 1, -1, -(2**31), INT32_MAX]),
        ),
    )
)
def test_any_numbers_give_a_request_or_our_error(inputs):
    """A request has its fields in range; errors are InvalidRequestError or UnsupportedError."""
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
    assert request.max_tokens >= 1 or request.max_tokens == ALL_THAT_FITS
    assert request.num_draft_tokens is None or 0 <= request.num_draft_tokens <= 16
