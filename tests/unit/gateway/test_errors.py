"""Errors: each has its status and OpenAI's error object, and none is an answer."""

import json

import pytest
from openai.types import completion_create_params as completion_params
from openai.types.chat import completion_create_params as chat_params

from specdec.gateway.openai_api.schema import ChatRequest, CompletionRequest
from tests.doubles.triton_stream import said
from tests.unit.gateway.conftest import running

NAMED = {"type": "function", "function": {"name": "b"}}


def tool(name):
    """Return a tool with a function of this name."""
    return {"type": "function", "function": {"name": name}}


def tool_with(parameters):
    """Return a tool whose arguments have this schema."""
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def nested(depth):
    """Return a schema with this many levels."""
    schema = {"required": ["a"]}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def schema_format(schema):
    """Return a `response_format` with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.parametrize(
    ("text", "status", "code", "param"),
    [
        ("invalid_request: temperature must be …; given 11", 400, "invalid_request", "temperature"),
        ("invalid_request: stop_words[3] may have …", 400, "invalid_request", "stop[3]"),
        ("invalid_request: messages[0] must be …", 400, "invalid_request", "messages[0]"),
        ("invalid_request: exactly one of …", 400, "invalid_request", None),
        (
            "invalid_request: prompt (9 tokens) + max_tokens (9) must be at most 10; given 18",
            400,
            "context_length_exceeded",
            "messages",
        ),
        ("unsupported: min_p must be 0 on these engines; given 1", 400, "unsupported", "min_p"),
        ("overloaded: 64 requests are in flight", 429, "overloaded", None),
        ("shutting_down: the server is stopping", 503, "shutting_down", None),
        ("engine_failed: the target is down", 503, "engine_failed", None),
        ("configuration: no head", 503, "configuration", None),
        ("deadline_exceeded: 5 ms have passed", 408, "deadline_exceeded", None),
        ("internal: a fault", 500, "internal", None),
        ("Request for unknown model 'specdec'", 503, "not_ready", None),
        ("Triton's own words", 500, "internal", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_error_of_the_server_has_its_status(text, status, code, param, stream):
    """Also in a stream, where it comes before the first token."""
    with running(lambda _: [text]) as gateway:
        answer = gateway.chat(stream=stream)
    assert answer.status == status
    expected = (text.partition(": ")[2] or text).replace("stop_words", "stop")
    if code == "context_length_exceeded":
        expected = f"prompt is too long: {expected}"
    assert answer.error["message"] == expected
    assert (answer.error["code"], answer.error["param"]) == (code, param)
    assert ("Retry-After" in answer.headers) == (status in (429, 503))
    assert answer.headers["x-should-retry"] == ("false" if status == 408 else None)


def test_unreachable_server_is_unavailable():
    """The client may try again."""
    with running() as gateway:
        gateway.triton._server.stop(None).wait()
        answer = gateway.chat()
        assert gateway.ask("/health/ready").status == 503
        assert gateway.ask("/health").status == 200
    assert (answer.status, answer.error["type"]) == (503, "service_unavailable_error")


def test_error_after_the_first_token_is_an_event():
    """It is the last event, and there is no [DONE] after it."""
    with running(lambda _: [said("a", [1]), "engine_failed: the target is down"]) as gateway:
        answer = gateway.chat(stream=True)
        whole = gateway.chat()
    assert answer.status == 200
    assert answer.events[-1]["error"]["code"] == "engine_failed"
    assert whole.status == 503


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "invalid_json"),
        (b"[" * 100_000, None),
        (b'"x"', None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b"", None),
        (b'{"model": "specdec", "messages": [{"role": "user", "content": "\\ud83d"}]}', None),
        (
            b'{"model": "specdec", "messages": [{"role": "user", "content": "x"}], "seed": NaN}',
            None,
        ),
        (b'{"model": "specdec", "messages": [], "n": ' + b"9" * 5000 + b"}", None),
    ],
)
def test_body_that_is_no_request_is_refused(shared, data, code):
    """Whatever it is, the status is 400."""
    answer = shared.ask(data=data)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert code is None or answer.error["code"] == code


def test_other_content_type_is_refused(shared):
    """A form cannot be read as a request."""
    answer = shared.ask(data=b"a=b", Content_Type="application/x-www-form-urlencoded")
    assert answer.status == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temprature": 1}, "temprature"),
        ({"max_tokens": 2**32 + 4}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"n": 0}, "n"),
        ({"foo-bar": 0}, "foo-bar"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"n": 17}, "n"),
        ({"n": 2**60}, "n"),
        ({"stop": 5}, "stop"),
        ({"stop": [5]}, "stop[0]"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"store": True}, "store"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "json": "{}"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        (
            {
                "response_format": {"type": "json_object"},
                "structured_outputs": {"regex": "a"},
            },
            "structured_outputs",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [tool("a b")]}, "tools[0].function.name"),
        ({"tools": [tool("a"), tool("a")]}, "tools"),
        ({"tools": [tool(f"a{n}") for n in range(129)]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool("a")], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [tool("a")], "response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [tool("a")], "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "user", "content": "x", "mood": "y"}]}, "messages[0].mood"),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].id",
        ),
        ({"tools": [tool_with(nested(100))]}, "tools[0].function.parameters"),
        (
            {"tools": [tool_with(nested(300))], "tool_choice": "required"},
            "tools[0].function.parameters",
        ),
        ({"tools": [tool_with({"type": "array"})]}, "tools[0].function.parameters"),
        ({"tools": [tool_with({})], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [tool_with({})], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ({"response_format": schema_format(nested(300))}, "response_format.json_schema.schema"),
        ({"structured_outputs": {"json": nested(300)}}, "structured_outputs.json"),
        ({"logit_bias": {"5": "x"}}, "logit_bias"),
        ({"prediction": {"type": "other", "content": "x"}}, "prediction.type"),
    ],
)
def test_wrong_field_is_refused_by_name(shared, fields, param):
    """The model is not asked."""
    num_before = len(shared.triton.asked)
    answer = shared.chat(**fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert param.rpartition(".")[2].partition("[")[0] in answer.error["message"]
    assert len(shared.triton.asked) == num_before


@pytest.mark.parametrize(
    ("params", "schema"),
    [
        (chat_params.CompletionCreateParamsBase, ChatRequest),
        (completion_params.CompletionCreateParamsBase, CompletionRequest),
    ],
)
def test_every_field_of_openais_api_is_known(params, schema):
    """The fields of the installed package `openai` are done, or refused with a reason."""
    assert set(params.__annotations__) <= set(schema.model_fields)


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/nothing", 404), ("/v1/models/nothing", 404), ("/nothing", 404)]
)
def test_unknown_path_has_the_same_error_object(shared, path, status):
    """Clients read all errors in one way."""
    answer = shared.ask(path)
    assert (answer.status, answer.error["type"]) == (status, "not_found_error")


def test_wrong_method_is_refused(shared):
    """Only POST generates."""
    assert shared.ask("/v1/chat/completions").status == 405


def test_fault_of_ours_shows_no_traceback(monkeypatch):
    """The client learns that it is our fault, and nothing of the code."""
    with running() as gateway:
        monkeypatch.setattr(
            "specdec.gateway.app.chat_requests", lambda *_: json.loads("secret detail")
        )
        answer = gateway.chat()
    assert (answer.status, answer.error["code"]) == (500, "internal")
    assert b"secret" not in answer.body
