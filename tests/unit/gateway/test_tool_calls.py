"""Calls are found in the text of an answer, however the text is cut into chunks."""

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


def read(reader, text, cuts=()):
    """Return the text of an answer and its calls, as (name, arguments)."""
    edges = [0, *sorted(cuts), len(text)]
    shown, calls = "", []
    for begin, end in pairwise(edges):
        piece = reader.read(text[begin:end], is_last=False)
        shown += piece.text
        for each in piece.calls:
            if each.name is not None:
                assert each.index == len(calls)
                calls.append([each.name, each.arguments])
            else:
                assert each.index == len(calls) - 1
                calls[-1][1] += each.arguments
    piece = reader.read("", is_last=True)
    assert not piece.calls
    return shown + piece.text, [tuple(each) for each in calls]


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
    "text behind": (
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
    assert read(FreeAnswerReader(NAMES), answer, cuts) == expected


@given(st.text(alphabet='a<>{}"[]/tol_c \n;|', max_size=40), st.data())
def test_no_text_is_lost(text, data):
    """A text without calls comes out as it went in."""
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    assert read(FreeAnswerReader(NAMES), text, cuts) == (text, [])


@given(st.data())
def test_required_calls(data):
    """A list of calls has no text."""
    answer = f"[{WEATHER}, {ADD}]"
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=12))
    expected = ("", [("weather", PARIS), ("add", '{"a": 1, "b": 2}')])
    assert read(RequiredCallsReader(NAMES), answer, cuts) == expected


def test_named_call():
    """The whole answer is the arguments."""
    assert read(NamedCallReader("add"), '{"a": 1}', [3]) == ("", [("add", '{"a": 1}')])


def test_arguments_come_as_they_arrive():
    """A client sees each part of the arguments as soon as the model has written it."""
    reader = FreeAnswerReader(NAMES)
    begun = reader.read('<tool_call>\n{"name": "weather", "arguments": {"city', is_last=False)
    more = reader.read('": "Par', is_last=False)

    assert [(each.name, each.arguments) for each in begun.calls] == [("weather", '{"city')]
    assert [(each.name, each.arguments) for each in more.calls] == [(None, '": "Par')]
