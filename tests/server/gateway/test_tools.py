"""Tool calls of the default pair through the gateway, with OpenAI's own client."""

import json

import jsonschema
import openai
import pytest

from specdec.clients import GenerationRequest, GrpcClient
from tests.server.support.gateways import gateway_of

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"$ref": "#/$defs/City"},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["city", "unit", "days"],
            "additionalProperties": False,
            "$defs": {"City": {"type": "string", "maxLength": 20}},
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time"}}
TOOLS = [WEATHER, CLOCK]
QUESTION = [{"role": "user", "content": "What is the weather in Oslo and in Rome?"}]
DRAFTERS = ("none", "grammar", "lookup", "draft", "eagle3", "eagle3_tree", "auto")


@pytest.fixture(scope="module")
def client(server, tmp_path_factory):
    """Return OpenAI's client of a gateway in front of the server."""
    log = tmp_path_factory.mktemp("gateway") / "log"
    with (
        gateway_of(server, log) as gateway,
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as found,
    ):
        yield found


def ask(client, **fields):
    """Return the only choice of an answer about the weather."""
    asked = {"model": "specdec", "messages": QUESTION, "tools": TOOLS, "max_tokens": 200}
    answer = client.chat.completions.create(**asked | {"temperature": 0} | fields)
    return answer.choices[0]


def found_calls(choice):
    """Return the calls of a choice, after checking that their arguments follow the schemas."""
    calls = [(each.function.name, each.function.arguments) for each in choice.message.tool_calls]
    schemas = {"get_weather": WEATHER["function"]["parameters"], "get_time": {"maxProperties": 0}}
    for name, arguments in calls:
        jsonschema.validate(json.loads(arguments), schemas[name])
    return calls


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("is_parallel", [True, False])
def test_required_calls_are_valid_and_the_same_with_every_drafter(client, is_parallel, temperature):
    """Several calls or one; the answer has no text."""
    given = {
        "tool_choice": "required",
        "parallel_tool_calls": is_parallel,
        "temperature": temperature,
        "seed": 3,
        "max_tokens": 400,
    }
    answers = [ask(client, **given, extra_body={"drafter": each}) for each in DRAFTERS]

    expected = found_calls(answers[0])
    assert len(expected) == 1 or is_parallel
    for each in answers:
        assert (each.finish_reason, each.message.content) == ("tool_calls", None)
        assert found_calls(each) == expected


def test_named_function_is_called(client):
    """As at OpenAI, the reason of the end is `stop`."""
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = ask(client, tool_choice=choice)
    ((name, _),) = found_calls(answer)
    assert (name, answer.finish_reason) == ("get_weather", "stop")


def test_streamed_calls_are_those_in_one_body(client):
    """Arguments come in several parts."""
    whole = found_calls(ask(client, tool_choice="required"))
    asked = {"model": "specdec", "messages": QUESTION, "tools": TOOLS, "temperature": 0}
    calls, reason, num_parts = [], None, 0
    for chunk in client.chat.completions.create(
        **asked, max_tokens=200, tool_choice="required", stream=True
    ):
        for choice in chunk.choices:
            assert not choice.delta.content
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or ():
                num_parts += 1
                if call.function.name:
                    calls.append([call.function.name, ""])
                calls[call.index][1] += call.function.arguments
    assert [tuple(each) for each in calls] == whole
    assert reason == "tool_calls"
    assert num_parts > len(calls)


def test_free_answers_are_the_same_with_every_drafter(client):
    """The model may write text or calls, under a guide that begins with a call's tag."""
    answers = [ask(client, max_tokens=60, extra_body={"drafter": each}) for each in DRAFTERS]
    found = {
        (each.message.content, *((own.function.name, own.function.arguments) for own in calls))
        for each in answers
        for calls in [each.message.tool_calls or ()]
    }
    assert len(found) == 1
    assert any(found.pop())


def test_model_sees_calls_and_results_of_earlier_turns(client, server):
    """The prompt of a conversation with tools is the one of the KServe inputs."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
    }
    turns = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    answer = ask(client, messages=turns, max_tokens=16)
    call = call | {"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
    sent = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]}, turns[2]]
    with GrpcClient(server.grpc_url, timeout_s=120.0) as direct:
        expected = direct.generate(
            GenerationRequest(messages=sent, tools=TOOLS, max_tokens=16, num_draft_tokens=0)
        )
        without = direct.generate(GenerationRequest(messages=QUESTION, max_tokens=16))
    assert answer.message.content == expected.text
    assert expected.end.num_input_tokens > without.end.num_input_tokens + 150
