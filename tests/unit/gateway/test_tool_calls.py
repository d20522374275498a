"""Calls are found in the text of an answer, however the text is cut into chunks."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.gateway.tool_calls.answer_readers import (
    FreeAnswerReader,
    NamedCallReader,
    RequiredCallsReader,
)

NAMES = {"weather", "add"}
PARIS = '{"city": "Paris", "note": "a \\"}\\" in it", "days": [1, {"x": 2}]}'
WEATHER = f'{{"name": "weather", "arguments": {PARIS}}}'
ADD = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
LLAMA = f'{{"name": "weather", "parameters": {PARIS}}}'


def read(reader, text, cuts=(), *, ends_apart=True):
    """Return the text of an answer and its calls, as (name, arguments).

    `ends_apart`: the end comes with an empty last chunk.
    """
    edges = [0, *sorted(cuts), len(text)]
    shown, calls = "", []
    for number, (begin, end) in enumerate(pairwise(edges), start=2):
        is_last = number == len(edges) and not ends_apart
        piece = reader.read(text[begin:end], is_last=is_last)
        shown += piece.text
        for each in piece.calls:
            if each.name is not None:
                assert each.index == len(calls)
                calls.append([each.name, each.arguments])
            else:
                assert each.index == len(calls) - 1
                calls[-1][1] += each.arguments
    if ends_apart:
        piece = reader.read("", is_last=True)
        assert not piece.calls
        shown += piece.text
    return shown, [tuple(each) for each in calls]


FREE = {
    "text": ("Hello < there <tool", "Hello < there <tool", []),
    "empty": ("", "", []),
    "tagged": (f"<tool_call>\n{WEATHER}\n</tool_call>", "", [("weather", PARIS)]),
    "text before": (f"Let me see.\n<tool_call>{WEATHER}</tool_call>", "Let me see.\n", 1),
    "two": (
        f"<tool_call>\n{WEATHER}\n</tool_call>\n<tool_call>\n{ADD}\n</tool_call>",
        "",
        [("weather", PARIS), ("add", '{"a": 1, "b": 2}')],
    ),
    "text after it": (
        f"<tool_call>{ADD}</tool_call>\n Done.",
        "Done.",
        [("add", '{"a": 1, "b": 2}')],
    ),
    "ended by its stop word": (f"<tool_call>\n{WEATHER}\n", "", [("weather", PARIS)]),
    "other order": (
        '<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>',
        "",
        [("add", '{"a": 1}')],
    ),
    "much white space": (
        f'<tool_call>{{{30 * " "}"name": "add", "arguments": {{"a": 1}}}}</tool_call>',
        "",
        [("add", '{"a": 1}')],
    ),
    "arguments as text": (
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        [("add", '{"a": 1}')],
    ),
    "arguments that are no object": (
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
        [],
    ),
    "no arguments": ('<tool_call>{"name": "add"}</tool_call>', "", [("add", "{}")]),
    "unknown function": (
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        [],
    ),
    "no JSON": ("<tool_call> hello</tool_call>", "<tool_call> hello</tool_call>", []),
    "cut name": ('a<tool_call>{"na', 'a<tool_call>{"na', []),
    "cut arguments": ('<tool_call>{"name": "add", "arguments": {"a": ', "", [("add", '{"a": ')]),
    "Llama": (LLAMA, "", [("weather", PARIS)]),
    "Llama's tag": (f" <|python_tag|>{LLAMA}", "", [("weather", PARIS)]),
    "Llama's tag and white space": (f"<|python_tag|> {LLAMA}", "", [("weather", PARIS)]),
    "JSON with another key": ('{"answer": "<tool_call>"}', 0, []),
    "call after a brace": (f"{{ world <tool_call>{WEATHER}</tool_call>", "{ world ", 1),
    "tag without a call": (f"<tool_call>{{x}} <tool_call>{WEATHER}", "<tool_call>{x} ", 1),
    "several of Llama's": (f"{LLAMA}; {LLAMA}", "", [("weather", PARIS), ("weather", PARIS)]),
    "JSON that is no call": ('\n{"name": "rm", "parameters": {}} x', 0, []),
    "call within a text": (f"So: {LLAMA}", f"So: {LLAMA}", []),
}
"""Answers, with their text (0: all of it) and their calls (1: one of `weather`)."""


@pytest.mark.parametrize("name", FREE)
@given(st.data())
def test_free_answers(name, data):
    """Calls in either format are found; everything else is text."""
    answer, text, calls = FREE[name]
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=12))
    expected = (text if text != 0 else answer, [("weather", PARIS)] if calls == 1 else calls)
    ends_apart = data.draw(st.booleans())
    assert read(FreeAnswerReader(NAMES), answer, cuts, ends_apart=ends_apart) == expected


@given(st.text(alphabet='a<>{}"[]/tol_c \n;|', max_size=40), st.data())
def test_no_text_is_lost(text, data):
    """A text without calls comes out as it went in."""
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    ends_apart = data.draw(st.booleans())
    assert read(FreeAnswerReader(NAMES), text, cuts, ends_apart=ends_apart) == (text, [])


@given(st.data())
def test_required_calls(data):
    """A list of calls has no text."""
    answer = f"[{WEATHER}, {ADD}]"
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=12))
    expected = ("", [("weather", PARIS), ("add", '{"a": 1, "b": 2}')])
    assert read(RequiredCallsReader(NAMES), answer, cuts) == expected


def test_named_call():
    """The whole answer is the arguments; an empty answer has no call."""
    assert read(NamedCallReader("add"), '{"a": 1}', [3]) == ("", [("add", '{"a": 1}')])
    assert read(NamedCallReader("add"), "") == ("", [])


@pytest.mark.parametrize("answer", [f"{LLAMA}; {LLAMA} x", f"<tool_call>{WEATHER}</tool_call> x"])
@given(st.data())
def test_what_follows_the_last_call_is_dropped(answer, data):
    """A client that wants one call gets one, in either format."""
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=12))
    reader = FreeAnswerReader(NAMES, max_calls=1)
    assert read(reader, answer, cuts) == ("", [("weather", PARIS)])


def test_json_that_is_no_call_is_shown_as_it_arrives():
    """Its first key tells."""
    reader = FreeAnswerReader(NAMES)
    assert reader.read('{"ans', is_last=False).text == '{"ans'
    assert reader.read('wer": 1', is_last=False).text == 'wer": 1'


@pytest.mark.parametrize("part", ["<tool_call>", '<tool_call>{"name": "', "{", " "])
def test_time_grows_with_the_length_alone(part):
    """A hostile answer costs its worker no more than others do."""

    def seconds(count):
        begun_s = time.process_time()
        FreeAnswerReader(NAMES).read(part * count, is_last=True)
        return time.process_time() - begun_s

    seconds(1_000)
    short_s, long_s = (min(seconds(count) for _ in range(3)) for count in (8_000, 32_000))
    assert long_s < 12 * short_s + 0.05


def test_arguments_come_as_they_arrive():
    """A client sees each part of the arguments as soon as the model has written it."""
    reader = FreeAnswerReader(NAMES)
    begun = reader.read('<tool_call>\n{"name": "weather", "arguments": {"city', is_last=False)
    more = reader.read('": "Par', is_last=False)

    assert [(each.name, each.arguments) for each in begun.calls] == [("weather", '{"city')]
    assert [(each.name, each.arguments) for each in more.calls] == [(None, '": "Par')]
