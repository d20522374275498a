"""Tests of the gRPC and HTTP clients with servers that behave well, badly, or are missing."""

import json
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from specdec.clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError

QUESTION = GenerationRequest(text_input="hi", max_tokens=3, stop_words=["a", "b"], request_id="r1")


def chunk(text, ids, **final):
    """Return the output fields of one response; `final` are those that only the last one has."""
    fields = {"text_output": [text], "output_ids": ids, "output_sources": [0] * len(ids)}
    return fields | {name: [value] for name, value in final.items()}


ANSWER = [chunk("Gr", [1, 2]), chunk("üß", [3]), chunk("e", [4], finish_reason="stop")]


class Script:
    """The steps of a fake server for one request, and what the server saw of it.

    A number is a pause in seconds. Over HTTP the other steps are bytes, each a chunk of the body.
    Over gRPC they are:

    - a dict: the fields of a response;
    - a string: an error text within the stream;
    - a pair of code and text: an error that ends the call.

    Attributes:
        echo: the id in gRPC responses; None for that of the request.
        asked: the request; None before it came.
        is_hung_up: set when the call has ended (gRPC), or the client has closed it (HTTP).
    """

    def __init__(self, steps, echo=None):
        self.steps = steps
        self.echo = echo
        self.asked = None
        self.is_hung_up = threading.Event()


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The part of Triton's gRPC service that a stream needs."""

    script = None

    def ModelStreamInfer(self, request_iterator, context):  # noqa: N802 - gRPC's name
        """Answer the one request of a stream by the script."""
        context.add_callback(self.script.is_hung_up.set)
        request = next(request_iterator)
        self.script.asked = request
        self.script.metadata = dict(context.invocation_metadata())
        for step in self.script.steps:
            if isinstance(step, dict):
                yield service_pb2.ModelStreamInferResponse(infer_response=self.response(step))
            elif isinstance(step, str):
                yield service_pb2.ModelStreamInferResponse(error_message=step)
            elif isinstance(step, tuple):
                context.abort(*step)
            else:
                time.sleep(step)

    def response(self, fields):
        """Return the message of a response, with raw contents as Triton sends them."""
        echo = self.script.asked.id if self.script.echo is None else self.script.echo
        message = service_pb2.ModelInferResponse(id=echo)
        for name, values in fields.items():
            is_text = isinstance(values[0], str)
            datatype = "BYTES" if is_text else "INT32"
            message.outputs.add(name=name, datatype=datatype, shape=[1, len(values)])
            if is_text:
                texts = [value.encode() for value in values]
                raw = b"".join(struct.pack("<I", len(text)) + text for text in texts)
            else:
                raw = struct.pack(f"<{len(values)}i", *values)
            message.raw_output_contents.append(raw)
        return message


class FakeHandler(BaseHTTPRequestHandler):
    """The part of Triton's HTTP server that the generate extension needs."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Answer by the script; all bytes of a step are sent unchanged in a chunk of their own."""
        script = self.server.script
        script.path = self.path
        script.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(script.status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for step in script.steps:
                if isinstance(step, bytes):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(step), step))
                else:
                    time.sleep(step)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            script.is_hung_up.set()

    def log_message(self, *args):
        """Write no log."""


@pytest.fixture
def over_grpc():
    """Return a function from steps to a client of a fake gRPC server, and its Script."""
    triton = FakeTriton()
    server = grpc.server(ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with GrpcClient(f"127.0.0.1:{port}") as client:

        def start(steps, echo=None):
            triton.script = Script(steps, echo)
            return client, triton.script

        yield start
    server.stop(None).wait()


@pytest.fixture
def over_http():
    """Return a function from steps to a client of a fake HTTP server, and its Script."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHandler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with HttpClient(f"http://127.0.0.1:{server.server_port}") as client:

        def start(steps, status=200):
            server.script = Script(steps)
            server.script.status = status
            return client, server.script

        yield start
    server.shutdown()
    server.server_close()
    thread.join()


def event(fields, request_id="r1"):
    """Encode a response as a server-sent event, single elements as bare values."""
    bare = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    body = {"id": request_id, "model_name": "specdec"} | bare
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


def failure(action):
    """Return the SpecdecError that the action raises."""
    with pytest.raises(SpecdecError) as caught:
        action()
    return caught.value


def test_grpc_stream_yields_each_response(over_grpc):
    """Each response is a chunk, except for the empty one at the end, which only has flags."""
    client, script = over_grpc([*ANSWER, {}])

    chunks = list(client.stream(QUESTION))

    assert [part.text for part in chunks] == ["Gr", "üß", "e"]
    assert [part.token_ids for part in chunks] == [(1, 2), (3,), (4,)]
    assert chunks[-1].end.finish_reason == "stop"
    names = [tensor.name for tensor in script.asked.inputs]
    assert names == ["text_input", "max_tokens", "stream", "stop_words"]
    assert list(script.asked.inputs[3].shape) == [1, 2]
    assert script.asked.raw_input_contents[3] == b"\1\0\0\0a\1\0\0\0b"
    assert "triton_grpc_error" not in script.metadata


def test_http_stream_survives_any_packaging(over_http):
    """Events may be split inside a character, or sent several at once: the chunks are the same."""
    data = b"".join(event(part) for part in ANSWER)
    split = data.index("ü".encode()) + 1
    for steps in ([data], [data[:split], data[split:]], [bytes([byte]) for byte in data]):
        client, script = over_http(steps)

        chunks = list(client.stream(QUESTION))

        assert "".join(part.text for part in chunks) == "Grüße"
        assert [part.token_ids for part in chunks] == [(1, 2), (3,), (4,)]
    assert script.path == "/v2/models/specdec/generate_stream"
    assert script.asked == {
        "id": "r1",
        "text_input": "hi",
        "max_tokens": 3,
        "stream": True,
        "stop_words": ["a", "b"],
    }


def test_generate_waits_for_one_response(over_grpc, over_http):
    """Both clients send stream = false and return the whole answer."""
    whole = chunk("Grüße", [1, 2, 3, 4], finish_reason="stop")
    client, script = over_grpc([whole])
    assert client.generate(QUESTION).token_ids == (1, 2, 3, 4)
    assert script.asked.raw_input_contents[2] == b"\0"

    client, script = over_http([event(whole).removeprefix(b"data: ")])
    assert client.generate(QUESTION).text == "Grüße"
    assert script.asked["stream"] is False


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARG"),
        (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE"),
        (grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED"),
    ],
)
def test_grpc_errors_carry_type_and_code(over_grpc, code, status):
    """An error in the middle of a stream keeps the server's error_type and Triton's code."""
    client, _ = over_grpc([ANSWER[0], (code, "some_type: 3 is above 2")])

    error = failure(lambda: list(client.stream(QUESTION)))

    assert (error.error_type, error.status, error.message) == ("some_type", status, "3 is above 2")


def test_error_without_a_code_is_raised_too(over_grpc):
    """Triton puts errors into the stream as text without a code; they are raised as well."""
    client, _ = over_grpc(["Request for unknown model: 'x'"])

    assert failure(lambda: list(client.stream(QUESTION))).error_type == "triton"


def test_http_error_inside_a_good_stream_is_raised(over_http):
    """A generation may fail after HTTP status 200, so each event is checked for an error."""
    client, _ = over_http([event(ANSWER[0]), b'data: {"error":"engine_failed: gone"}\n\n'])
    received = []

    error = failure(lambda: received.extend(client.stream(QUESTION)))

    assert error.error_type == "engine_failed"


@pytest.mark.parametrize(
    "body", [b'{"error":"a_type: text"}', b'data: {"error":"a_type: text"}\n\n']
)
def test_http_error_status_is_read_from_either_form(over_http, body):
    """Triton sends an error before the first response as JSON or as an event (generate_stream)."""
    client, _ = over_http([body], status=503)

    error = failure(lambda: list(client.stream(QUESTION)))

    assert (error.error_type, error.message, error.status) == ("a_type", "text", "UNAVAILABLE")


@pytest.mark.parametrize(
    ("details", "error_type"),
    [
        ("Socket closed", "connection_failed"),
        ("recvmsg:Connection reset by peer", "connection_failed"),
        ("the model is not ready", "triton"),
    ],
)
def test_connection_that_breaks_is_told_from_what_triton_says(over_grpc, details, error_type):
    """As when tritonserver is killed; both have the code UNAVAILABLE."""
    client, _ = over_grpc([ANSWER[0], (grpc.StatusCode.UNAVAILABLE, details)])
    assert failure(lambda: list(client.stream(QUESTION))).error_type == error_type


def test_answer_cut_short_is_an_error(over_grpc, over_http):
    """A stream that ends without its last response raises client_broken_answer."""
    client, _ = over_grpc(ANSWER[:2])
    assert failure(lambda: list(client.stream(QUESTION))).error_type == "client_broken_answer"
    client, _ = over_http([event(ANSWER[0])])
    assert failure(lambda: list(client.stream(QUESTION))).error_type == "client_broken_answer"


def test_answer_to_another_request_is_refused(over_grpc, over_http):
    """A response with another request's id never reaches the caller."""
    client, _ = over_grpc(ANSWER, echo="r2")
    assert "r2" in failure(lambda: list(client.stream(QUESTION))).message
    client, _ = over_http([event(ANSWER[0], request_id="r2")])
    assert "r2" in failure(lambda: list(client.stream(QUESTION))).message


def test_closing_the_iterator_hangs_up(over_grpc, over_http):
    """If the caller stops reading, the server sees it and can stop, on both transports."""
    client, script = over_grpc([ANSWER[0], 5.0])
    chunks = client.stream(QUESTION)
    assert next(chunks).text == "Gr"
    chunks.close()
    assert script.is_hung_up.wait(2.0)

    client, script = over_http([event(ANSWER[0]), 0.1] * 50)
    chunks = client.stream(QUESTION)
    assert next(chunks).text == "Gr"
    chunks.close()
    assert script.is_hung_up.wait(2.0)


def slow_body():
    """Return steps over HTTP that send a byte every 30 ms, for seconds."""
    return [step for byte in event(ANSWER[2]) for step in (bytes([byte]), 0.03)]


@pytest.mark.parametrize("way", ["stream", "generate"])
@pytest.mark.parametrize(
    ("transport", "steps"),
    [
        ("over_grpc", [1.0]),
        ("over_grpc", [ANSWER[0], 1.0]),
        ("over_grpc", [ANSWER[0], 0.05] * 20),
        ("over_http", [1.0]),
        ("over_http", [event(ANSWER[0]), 1.0]),
        ("over_http", [event(ANSWER[0]), 0.05] * 20),
        ("over_http", slow_body()),
    ],
)
def test_timeout_limits_the_whole_request(transport, steps, way, request):
    """A request ends at its timeout, whether the server is silent or keeps sending."""
    client, _ = request.getfixturevalue(transport)(steps)
    start = time.monotonic()

    if way == "stream":
        error = failure(lambda: list(client.stream(QUESTION, timeout_s=0.2)))
    else:
        error = failure(lambda: client.generate(QUESTION, timeout_s=0.2))

    assert error.error_type == "client_timeout"
    assert 0.2 <= time.monotonic() - start < 0.8


def test_timeout_limits_an_error_page_too(over_http):
    """The body of an error may come slowly, like that of an answer."""
    client, _ = over_http(slow_body(), status=503)
    error = failure(lambda: list(client.stream(QUESTION, timeout_s=0.2)))
    assert error.error_type == "client_timeout"


def test_connections_survive_requests_in_time(over_http):
    """A time limit that was not reached does nothing to the connection and its next request."""
    client, script = over_http([event(ANSWER[0]), event(ANSWER[2])])
    for _ in range(3):
        assert len(list(client.stream(QUESTION, timeout_s=0.3))) == 2
    script.steps = [0.5, event(ANSWER[2])]
    assert len(list(client.stream(QUESTION, timeout_s=5.0))) == 1


def test_missing_server_is_a_failed_connection():
    """Its `connection_failed` differs from the errors of a server that refuses a request."""
    with GrpcClient("127.0.0.1:1") as client:
        assert failure(lambda: client.generate(QUESTION)).error_type == "connection_failed"
        assert not client.is_ready(timeout_s=0.5)
    with HttpClient("127.0.0.1:1") as client:
        assert failure(lambda: client.generate(QUESTION)).error_type == "connection_failed"
        assert not client.is_ready(timeout_s=0.5)


@pytest.mark.parametrize("body", [b"<html>", b"[1]"])
def test_pages_of_a_proxy_are_not_taken_for_answers(over_http, body):
    """A body that is not Triton's JSON raises SpecdecError; an HTTP error status is in its text."""
    client, _ = over_http([body])
    assert failure(lambda: client.generate(QUESTION)).error_type == "client_broken_answer"
    client, _ = over_http([body], status=502)
    assert "502" in failure(lambda: client.generate(QUESTION)).message
