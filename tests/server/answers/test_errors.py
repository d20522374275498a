"""Bad input gets the documented error over gRPC and HTTP, and the next request is served."""

import json

import numpy as np
import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from tests.server.support.faulty import CACHE_TOKENS
from tests.server.support.live import Failure, ask_http, raw_client, tensor

NAN = float("nan")
HALF_A_PAIR = '[{"role": "user", "content": "\\ud83d"}]'

# name: (inputs as JSON values, error type, part of the message)
REFUSED = {
    "no prompt": ({"max_tokens": 4}, "invalid_request", "exactly one of"),
    "two prompts": ({"text_input": "x", "input_ids": [5]}, "invalid_request", "exactly one of"),
    "empty prompt": ({"text_input": ""}, "invalid_request", "text_input"),
    "no tokens": ({"text_input": "x", "max_tokens": 0}, "invalid_request", "given 0"),
    "negative": ({"text_input": "x", "max_tokens": -7}, "invalid_request", "given -7"),
    "huge": ({"text_input": "x", "max_tokens": 2**31 - 1}, "invalid_request", "8192"),
    "over the context": ({"text_input": "word " * 9000}, "invalid_request", "8192"),
    "broken JSON": ({"messages": "[{"}, "invalid_request", "messages must be a JSON list"),
    "nested JSON": ({"messages": "[" * 50_000}, "invalid_request", "messages"),
    "half a pair": ({"messages": HALF_A_PAIR}, "invalid_request", "surrogates"),
    "no roles": ({"messages": '[{"text": "x"}]'}, "invalid_request", "messages[0]"),
    "foreign token": ({"input_ids": [5, 49152]}, "invalid_request", "49152"),
    "no such drafter": ({"text_input": "x", "drafter": "oracle"}, "invalid_request", "'oracle'"),
    "k too large": ({"text_input": "x", "num_draft_tokens": 17}, "invalid_request", "given 17"),
    "long label": ({"text_input": "x", "task": "t" * 65}, "invalid_request", "65"),
    "no deadline": ({"text_input": "x", "deadline_ms": 0}, "invalid_request", "deadline_ms"),
    "cold": ({"text_input": "x", "temperature": -1.0}, "invalid_request", "given -1"),
    "not a number": ({"text_input": "x", "temperature": NAN}, "invalid_request", "given nan"),
    "no such rule": ({"text_input": "x", "verification": "magic"}, "invalid_request", "'magic'"),
    "too few": ({"text_input": "x", "max_tokens": 3, "min_tokens": 4}, "invalid_request", "to 3"),
}
LISTS = {"input_ids"}


@pytest.fixture(scope="module")
def raw(server):
    """Return a raw client of the server."""
    with raw_client(server) as opened:
        yield opened


@pytest.fixture(autouse=True)
def server_goes_on(request, server):
    """Check after each test that the next request is served."""
    yield
    with raw_client(server) as opened:
        answer = opened.infer("specdec", {"text_input": tensor("x"), "max_tokens": tensor(1)})
    assert answer[0].outputs["output_ids"].size == 1


def as_tensors(inputs):
    """Return the inputs as arrays with a batch dimension."""
    return {
        name: tensor(*value) if name in LISTS else tensor(value) for name, value in inputs.items()
    }


def post(server, path, body):
    """Post a body to a path of the model `specdec`; return (status, text)."""
    url = f"http://{server.http_url}/v2/models/specdec/{path}"
    response = ask_http("POST", url, body=body, retries=False, timeout=60.0)
    return response.status, response.data.decode()


UNKNOWN = {"temprature": "temperature", "drafterr": "drafter", "MAX_TOKENS": "max_tokens"}


@pytest.mark.parametrize("field", UNKNOWN)
def test_unknown_field_is_refused_with_the_nearest_name(server, raw, field):
    """The error suggests the right name.

    This holds for fields of a JSON body, for its `parameters`, and for parameters over gRPC.
    """
    bodies = {"text_input": "x", field: 1}, {"text_input": "x", "parameters": {field: 1}}
    messages = []
    for body in bodies:
        status, text = post(server, "generate", json.dumps(body))
        assert status == 400, text
        messages.append(json.loads(text)["error"])
    with pytest.raises(Failure) as caught:
        raw.infer("specdec", {"text_input": tensor("x")}, parameters={field: "1"})
    for message in [*messages, caught.value.message]:
        assert "invalid_request" in message
        assert f"unknown field {field!r}; did you mean {UNKNOWN[field]!r}?" in message


def test_input_sent_as_a_grpc_parameter_is_refused(raw):
    """An input among the request parameters would have no effect, so it is an error."""
    with pytest.raises(Failure, match="max_tokens came as a request parameter"):
        raw.infer("specdec", {"text_input": tensor("x")}, parameters={"max_tokens": "5"})


def test_fields_of_nvidias_clients_are_taken_at_their_neutral_values(server):
    """NVIDIA's clients always send these fields; any other value is refused by name."""
    neutral = {"beam_width": 1, "length_penalty": 1.0, "early_stopping": False}
    body = {"text_input": "x", "max_tokens": 1, **neutral}
    status, text = post(server, "generate", json.dumps(body))
    assert status == 200, text
    status, text = post(server, "generate", json.dumps(body | {"beam_width": 4}))
    assert status == 400
    assert "beam_width must be 1; given 4" in text


@pytest.mark.parametrize("name", REFUSED)
def test_bad_request_is_refused_over_grpc(raw, name):
    """The error has the documented type, and its message the limit or the given value."""
    inputs, error_type, expected_message = REFUSED[name]

    with pytest.raises(Failure) as caught:
        raw.infer("specdec", as_tensors(inputs))

    assert caught.value.error_type == error_type
    assert expected_message in caught.value.message
    assert "Traceback" not in caught.value.message


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@pytest.mark.parametrize("name", [name for name in REFUSED if name != "not a number"])
def test_bad_request_is_refused_over_http(server, path, name):
    """The same message comes as JSON with status 400. NaN is left out: JSON has none."""
    inputs, error_type, expected_message = REFUSED[name]

    status, text = post(server, path, json.dumps(inputs))

    # Triton 2.51 answers 400 to every error of a decoupled model.
    assert status == 400
    error = json.loads(text.removeprefix("data:"))["error"]
    assert error.startswith(f"{error_type}: ")
    assert expected_message in error


@pytest.mark.parametrize(
    "body",
    [
        '{"text_input": "x"',
        "[]",
        '{"text_input": "x", "max_tokens": "many"}',
        '{"text_input": 5}',
        '{"text_input": ["x", "y"]}',
        '{"text_input": "x", "max_tokens": [1, 2]}',
        '{"text_input": "x", "temperature": NaN}',
    ],
)
def test_wrong_json_is_refused_by_triton(server, body):
    """Broken JSON, wrong types and wrong shapes get an error with Triton's own message."""
    status, text = post(server, "generate", body)

    assert status >= 400  # Triton answers 500 if it cannot parse the body
    assert "error" in json.loads(text)


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"text_input": tensor("x"), "max_tokens": tensor(3.5)},
        {"text_input": tensor(5)},
        {"text_input": tensor("x", "y")},
        {"text_input": tensor("x"), "max_tokens": np.asarray([3], dtype=np.int32)},
        {"text_input": tensor("x"), "no_such_input": tensor(1)},
        {"input_ids": np.zeros((1, 2, 2), dtype=np.int32)},
    ],
    ids=[
        "nothing at all",
        "float",
        "number for text",
        "two texts",
        "no batch dimension",
        "unknown",
        "cube",
    ],
)
def test_wrong_tensors_are_refused_by_triton(raw, inputs):
    """Types, shapes and names that config.pbtxt does not declare get an error, no traceback."""
    with pytest.raises(Failure) as caught:
        raw.infer("specdec", inputs)

    assert "Traceback" not in caught.value.message
    assert not caught.value.message.startswith("internal")


def test_batch_of_two_is_refused_by_us(raw):
    """The message says that a batch has at most one sequence."""
    inputs = {"text_input": np.asarray([[b"a"], [b"b"]], dtype=np.object_)}

    with pytest.raises(Failure, match=r"^invalid_request: .* batch of 2, the limit is 1"):
        raw.infer("specdec", inputs)


def test_empty_list_of_tokens_is_refused_by_us(raw):
    """A prompt without tokens is `invalid_request`, as an empty text is."""
    with pytest.raises(Failure, match="invalid_request: input_ids"):
        raw.infer("specdec", {"input_ids": np.zeros((1, 0), dtype=np.int32)})


@pytest.mark.parametrize("field", [b'"ma\xfe": 1', b'"id": "\xfe"', b'"tenan": "\xfe"'])
def test_bytes_that_are_not_utf_8_are_refused_by_us(server, field):
    """Triton's HTTP endpoint passes such bytes on, as parameters of the request or as its id."""
    url = f"http://{server.http_url}/v2/models/specdec/generate"
    answer = ask_http("POST", url, body=b'{"text_input": "x", "max_tokens": 4, ' + field + b"}")

    assert answer.status == 400
    assert answer.json()["error"].startswith("invalid_request: ")
    assert "UTF-8" in answer.json()["error"]


def test_request_that_the_engine_refuses_is_the_clients_fault(faulty_server):
    """The error type of our engine says that the request is the cause, here its length.

    The client gets `invalid_request`, not `engine_failed`.
    """
    # Without speculation the whole answer is one call, which the engine refuses at once.
    request = GenerationRequest(text_input="x", max_tokens=CACHE_TOKENS + 1, drafter="none")
    with GrpcClient(faulty_server.grpc_url) as client, pytest.raises(SpecdecError) as caught:
        client.generate(request)

    assert caught.value.error_type == "invalid_request"
    assert caught.value.status == "INVALID_ARG"
    assert "KV cache" in caught.value.message
