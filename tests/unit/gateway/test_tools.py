"""Tools: what the model is asked, and the calls that clients get."""

import json

import pytest
from jsonschema import ValidationError, validate
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from specdec.constraints.guide import Guide
from specdec.errors import InvalidRequestError
from specdec.gateway.openai_api.tool_use import NOT_COMPILED
from tests.doubles.triton_stream import said
from tests.unit.constraints.small_vocabulary import compiler
from tests.unit.constraints.test_compiler import BYTES
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
_VALUES = {
    "uniqueItems": True,
    "dependentRequired": {"a": ["b"]},
    "dependencies": {"a": ["b"]},
    "minProperties": 1,
    "maxProperties": 1,
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


def schema_of(gateway, parameters, **function):
    """Return the guide for the arguments of a function that must be called."""
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, **function}}
    return asked(gateway, tools=[tool], tool_choice=named("f"))[2]


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object"},
        {"type": "object", "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a", "b"]},
        {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["b"]}]},
    ],
)
def test_schemas_that_leave_other_arguments_open_stay_open(shared, parameters):
    """Closed, some of them would match nothing."""
    assert schema_of(shared, parameters) == parameters


@pytest.mark.parametrize(("strict", "is_any"), [(None, True), (False, True), (True, False)])
def test_a_schema_that_cannot_be_followed_is_refused_only_if_it_is_strict(shared, strict, is_any):
    """At OpenAI such a function is taken, and its arguments are not checked."""
    parameters = {"type": "object", "properties": {"a": {"items": [{"uniqueItems": True}]}}}
    found = schema_of(shared, parameters, strict=strict)
    assert (found == {"type": "object"}) == is_any
    assert schema_of(shared, SCHEMA, strict=strict) == SCHEMA | {"additionalProperties": False}


def test_names_are_no_keywords(shared):
    """An argument may be called as a keyword that cannot be followed."""
    properties = {"not": {"type": "string"}, "default": {"$ref": "#/$defs/x"}}
    parameters = {"type": "object", "properties": properties, "$defs": {"x": {"const": "#"}}}
    assert schema_of(shared, parameters) == parameters | {"additionalProperties": False}

    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    _, _, guide = asked(shared, tools=[tool], tool_choice="required")
    validate([{"name": "f", "arguments": {"not": "x", "default": "#"}}], guide)


@pytest.mark.parametrize("keyword", sorted(NOT_COMPILED))
def test_keywords_that_are_taken_for_unknown_are_refused_by_the_compiler(keyword):
    """Otherwise a schema would lose its effect for nothing."""
    values = {"not": {}, "if": {}, "then": {}, "else": {}, "minContains": 1, "maxContains": 1}
    given = {keyword: values.get(keyword, _VALUES.get(keyword, {}))}
    schema = {"type": ["object", "array"], "properties": {"a": {}}, **given}
    with pytest.raises(InvalidRequestError):
        compiler(BYTES).compile(Guide("json_schema", json.dumps(schema)))


def test_references_lead_to_the_same_schemas_in_a_list_of_calls(shared):
    """Addresses of the schema itself are left out, and data stays as it is."""
    parameters = {
        "$id": "https://example.com/x",
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/A"},
            "b": {"const": {"$ref": "#/$defs/A"}},
        },
        "$defs": {"A": {"type": "integer"}},
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    _, _, guide = asked(shared, tools=[tool], tool_choice="required")
    arguments = {"a": 1, "b": {"$ref": "#/$defs/A"}}
    validate([{"name": "f", "arguments": arguments}], guide)
    with pytest.raises(ValidationError):
        validate([{"name": "f", "arguments": arguments | {"a": "x"}}], guide)


def test_messages_of_openais_package_can_be_sent_back(shared):
    """Its streams leave more in a message than the API has."""
    function = {"name": "weather", "arguments": ARGUMENTS, "parsed_arguments": {"city": "Oslo"}}
    call = {"id": "c", "type": "function", "index": 0, "function": function}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer |= {"parsed": None, "annotations": None, "refusal": None}
    question = {"role": "user", "content": "Weather?"}
    result = {"role": "tool", "tool_call_id": "c", "content": "rain"}
    inputs, *_ = asked(shared, messages=[question, answer, result], tools=[WEATHER])
    (sent,) = json.loads(inputs["messages"])[1]["tool_calls"]
    assert sent == {
        "id": "c",
        "type": "function",
        "function": {"name": "weather", "arguments": {"city": "Oslo"}},
    }


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [("", {}), ("{", "{"), ("null", "null"), ("[1]", "[1]"), ('{"a": 1}', {"a": 1})],
)
def test_earlier_calls_may_have_any_arguments(shared, arguments, shown):
    """A call may have been cut, and clients send an empty text for none."""
    function = {"name": "weather", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    inputs, *_ = asked(shared, messages=messages, tools=[WEATHER])
    (sent,) = json.loads(inputs["messages"])[1]["tool_calls"]
    assert sent["function"]["arguments"] == shown


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


def test_required_call_that_a_stop_word_cuts_is_no_complete_call():
    """A client that acts on `tool_calls` would take its arguments for whole."""
    with running(saying('[{"name": "weather", "arguments": {"city": "')) as gateway:
        choice = message_of(gateway.chat(tools=[WEATHER], tool_choice="required", stop="Oslo"))
    assert choice.finish_reason == "stop"
    assert choice.message.tool_calls[0].function.arguments == '{"city": "'


def test_error_in_a_schema_names_the_tools():
    """The model knows its own inputs only."""
    with running(lambda _: ["invalid_request: guided_decoding_guide is wrong"]) as gateway:
        answer = gateway.chat(tools=[WEATHER])
    assert (answer.status, answer.error["param"]) == (400, "tools")
