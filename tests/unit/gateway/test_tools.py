"""Tools: what the model is asked, and the calls that clients get."""

import json

import pytest
from jsonschema import ValidationError, validate
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.doubles.triton_stream import said
from tests.unit.gateway.conftest import running

SCHEMA = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/City"}},
    "required": ["city"],
    "$defs": {"City": {"type": "string"}},
}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Tell the weather.", "parameters": SCHEMA},
}
CLOCK = {"type": "function", "function": {"name": "clock", "strict": False}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
ARGUMENTS = '{"city": "Oslo"}'


def named(name):
    """Return the choice of one function."""
    return {"type": "function", "function": {"name": name}}


def saying(text, *, reason="stop"):
    """Return a function that answers a text in pieces of three characters."""

    def answer(_inputs):
        for begin in range(0, len(text), 3):
            yield said(text[begin : begin + 3], [begin])
        yield said("", [], finish_reason=reason, num_input_tokens=7, num_output_tokens=4)

    return answer


def message_of(answer):
    """Return the only choice of an answer in one body, in the types of OpenAI's package."""
    return ChatCompletion.model_validate(answer.json).choices[0]


def joined(events):
    """Return content, calls and the reason of a streamed answer."""
    content, calls, reason = "", [], None
    for each in events[:-1]:
        for choice in ChatCompletionChunk.model_validate(each).choices:
            content += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or ():
                if call.id is not None:
                    assert (call.type, call.index) == ("function", len(calls))
                    calls.append([call.function.name, ""])
                calls[call.index][1] += call.function.arguments
    return content, [tuple(each) for each in calls], reason


def asked(gateway, **fields):
    """Return what the model gets for a chat with these fields."""
    answer = gateway.chat(**fields)
    assert answer.status == 200, answer.body
    inputs = gateway.triton.asked[-1][1]
    guide = inputs.get("guided_decoding_guide")
    return inputs, inputs.get("guided_decoding_guide_type"), guide and json.loads(guide)


def test_model_gets_the_tools_and_the_calls_of_earlier_turns(shared):
    """The chat template shows arguments as an object; `strict` is nothing for it."""
    function = {"name": "weather", "arguments": ARGUMENTS}
    messages = [
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "rain"},
    ]
    inputs, _, _ = asked(shared, messages=messages, tools=[WEATHER, CLOCK])

    assert json.loads(inputs["tools"]) == [WEATHER, named("clock")]
    assert json.loads(inputs["messages"])[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "weather", "arguments": {"city": "Oslo"}},
                }
            ],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "c"},
    ]


def test_free_answers_have_calls_that_follow_the_schemas(shared):
    """Calls in tags are constrained, unless no function is strict; one call ends the answer."""
    inputs, kind, guide = asked(shared, tools=[WEATHER], stop="x")
    assert (kind, guide["triggers"]) == ("structural_tag", ["<tool_call>"])
    (structure,) = guide["structures"]
    assert structure["schema"] == SCHEMA | {"additionalProperties": False}
    assert structure["begin"] + ARGUMENTS + structure["end"] == CALL
    assert inputs["stop_words"] == ["x"]

    inputs, *_ = asked(shared, tools=[WEATHER], parallel_tool_calls=False, stop="x")
    assert inputs["stop_words"] == ["x", "</tool_call>"]
    assert asked(shared, tools=[CLOCK])[1:] == (None, None)
    inputs, kind, _ = asked(shared, tools=[WEATHER], tool_choice="none")
    assert (kind, inputs.get("tools")) == (None, None)


@pytest.mark.parametrize(("is_parallel", "most"), [(True, 16), (False, 1)])
def test_required_calls_are_a_list(shared, is_parallel, most):
    """The schema holds for calls of each function, whose references hold in it."""
    fields = {"tool_choice": "required", "parallel_tool_calls": is_parallel}
    _, kind, schema = asked(shared, tools=[WEATHER, CLOCK], **fields)

    assert (kind, schema["minItems"], schema["maxItems"]) == ("json_schema", 1, most)
    validate([{"name": "weather", "arguments": {"city": "Oslo"}}], schema)
    validate([{"name": "clock", "arguments": {}}], schema)
    for wrong in (
        {"name": "weather", "arguments": {}},
        {"name": "weather", "arguments": {"city": "Oslo", "mood": "x"}},
        {"name": "rm", "arguments": {}},
    ):
        with pytest.raises(ValidationError):
            validate([wrong], schema)


def test_named_function_has_its_own_schema(shared):
    """The answer is its arguments."""
    _, kind, schema = asked(shared, tools=[WEATHER, CLOCK], tool_choice=named("weather"))
    assert (kind, schema) == ("json_schema", SCHEMA | {"additionalProperties": False})


@pytest.mark.parametrize(
    ("text", "fields", "content", "calls", "reason"),
    [
        ("Hello.", {}, "Hello.", [], "stop"),
        (f"Well.{CALL}", {}, "Well.", [("weather", ARGUMENTS)], "tool_calls"),
        (f"{CALL}\n{CALL}", {}, "", 2 * [("weather", ARGUMENTS)], "tool_calls"),
        (
            f'[{{"name": "weather", "arguments": {ARGUMENTS}}}]',
            {"tool_choice": "required"},
            "",
            [("weather", ARGUMENTS)],
            "tool_calls",
        ),
        (ARGUMENTS, {"tool_choice": named("weather")}, "", [("weather", ARGUMENTS)], "stop"),
    ],
)
def test_answers_have_calls(text, fields, content, calls, reason):
    """Streamed or not, calls and text are the same."""
    with running(saying(text)) as gateway:
        whole = message_of(gateway.chat(tools=[WEATHER], **fields))
        events = gateway.chat(tools=[WEATHER], stream=True, **fields).events

    found = [
        (each.function.name, each.function.arguments) for each in whole.message.tool_calls or ()
    ]
    assert (whole.message.content or "", found, whole.finish_reason) == (content, calls, reason)
    assert joined(events) == (content, calls, reason)


def test_calls_of_several_answers_are_told_apart():
    """Each answer has its own calls, with an id for each."""
    with running(saying(CALL)) as gateway:
        choices = gateway.chat(tools=[WEATHER], n=3).json["choices"]

    ids = [call["id"] for each in choices for call in each["message"]["tool_calls"]]
    assert len(set(ids)) == 3
    assert all(each["message"]["content"] is None for each in choices)


def test_call_that_is_cut_off_says_so():
    """The reason is `length`, and the arguments so far are given."""
    beginning = CALL.partition(": {")[0] + ': {"city": "O'
    with running(saying(beginning, reason="length")) as gateway:
        choice = message_of(gateway.chat(tools=[WEATHER]))
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments == '{"city": "O'


def test_error_in_a_schema_names_the_tools():
    """The model knows its own inputs only."""
    with running(lambda _: ["invalid_request: guided_decoding_guide is wrong"]) as gateway:
        answer = gateway.chat(tools=[WEATHER])
    assert (answer.status, answer.error["param"]) == (400, "tools")
