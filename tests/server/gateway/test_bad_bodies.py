"""Requests that are wrong, or unusual: each has its status and code, and the gateway goes on."""

import gzip
import http.client
import json
import socket
from dataclasses import dataclass

import pytest

from tests.server.support.gateways import gateway_of
from tests.server.support.live import num_inflight
from tests.waiting import wait_for

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
QUESTION = {"model": "specdec", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
TEXT = {"model": "specdec", "prompt": "Once", "max_tokens": 2}
CLOSED = 0
"""Status in the table for a connection that is closed without an answer."""
MAX_ERROR_BYTES = 2000
"""Most bytes of an error's body: it repeats little of a long request."""
JSON_TYPE = "Content-Type: application/json"
FORM_TYPE = "Content-Type: application/x-www-form-urlencoded"


def head(method="POST", path=CHAT, *lines, version="1.1"):
    """Return the bytes of a request before its body."""
    given = [f"{method} {path} HTTP/{version}", "Host: x", *lines]
    return "\r\n".join(given).encode() + b"\r\n\r\n"


def post(body, *lines, path=CHAT, kind=JSON_TYPE, length=None, version="1.1"):
    """Return the bytes of a POST; `length` is a Content-Length that is wrong."""
    size = f"Content-Length: {len(body) if length is None else length}"
    return head("POST", path, kind, size, *lines, version=version) + body


def chat(**fields):
    """Return the body of a chat with these fields."""
    return json.dumps(QUESTION | fields).encode()


def with_text(text):
    """Return the body of a chat with more fields, given as text that need not be JSON."""
    return json.dumps(QUESTION)[:-1].encode() + b", " + text.encode() + b"}"


def chunked(body, end=b"0\r\n\r\n", *lines):
    """Return the bytes of a POST in chunks."""
    start = head("POST", CHAT, JSON_TYPE, "Transfer-Encoding: chunked", *lines)
    return start + b"%x\r\n%s\r\n" % (len(body), body) + end


@dataclass(frozen=True)
class Row:
    """A request, and its answer."""

    name: str
    data: bytes
    """All that the client sends."""
    status: int
    code: str | None = None
    """`error.code`; None for an answer that is no error."""
    param: str | None = None
    """`error.param`."""


def field(text, code, param):
    """Return the row of a chat with one wrong field."""
    return Row(text[:30], post(with_text(text)), 400, code, param)


BODIES = [
    Row("not JSON", post(b'{"model"'), 400, "invalid_json"),
    Row("empty", post(b""), 400, "invalid_value"),
    Row("spaces", post(b"  \n"), 400, "invalid_json"),
    Row("a list", post(b"[]"), 400, "invalid_value"),
    Row("nested lists", post(b"[" * 100_000), 400, "invalid_json"),
    Row("nested objects", post(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400, "invalid_json"),
    Row("10 MB", post(chat(user="x" * 10_000_000)), 413, "body_too_large"),
    Row("gzip", post(gzip.compress(chat()), "Content-Encoding: gzip"), 400, "unsupported"),
    Row("text/plain", post(chat(), kind="Content-Type: text/plain"), 400, "invalid_value"),
    Row("no type", post(chat(), kind="X-Type: none"), 400, "invalid_value"),
    Row("a form", post(b"a=b", kind=FORM_TYPE), 400, "invalid_value"),
    Row("byte order mark", post(b"\xef\xbb\xbf" + chat()), 200),
    Row("UTF-16", post(chat().decode().encode("utf-16")), 200),
    Row("invalid UTF-8", post(chat().replace(b"hi", b"\xff")), 400, "invalid_json"),
    Row("bare NUL byte", post(chat().replace(b"hi", b"\0")), 400, "invalid_json"),
    Row("NUL in a text", post(chat(messages=[{"role": "user", "content": "a\0b"}])), 200),
    Row("NUL in a model", post(chat(model="specdec\0")), 404, "model_not_found", "model"),
    Row("the last of two keys counts", post(with_text('"max_tokens": 1')), 200),
    Row("no model", post(json.dumps({"messages": []}).encode()), 400, "missing_parameter", "model"),
    Row("long model", post(chat(model="m" * 2**20)), 404, "model_not_found", "model"),
]
FIELDS = [
    *(
        field(f'"max_tokens": {value}', "invalid_value", "max_tokens")
        for value in (2**32 + 4, "1e400", -1, 0, "true", '"5"', "NaN", "9" * 4300)
    ),
    field('"temperature": NaN', "invalid_request", "temperature"),
    field('"temperature": -Infinity', "invalid_request", "temperature"),
    field('"temperature": "1"', "invalid_value", "temperature"),
    field(f'"temperature": {"9" * 400}', "invalid_value", "temperature"),
    field('"seed": NaN', "invalid_value", "seed"),
    field(f'"n": {10**9}', "invalid_value", "n"),
    field(f'"stop": "{"x" * 2**20}"', "invalid_request", "stop[0]"),
    field(f'"stop": {json.dumps(["ab"] * 100_000)}', "invalid_request", "stop"),
    field('"logit_bias": {"1": NaN}', "invalid_request", "logit_bias"),
    field(
        f'"logit_bias": {json.dumps({str(token): 1 for token in range(200_000)})}',
        "invalid_request",
        "logit_bias",
    ),
    field('"messages": {}', "invalid_value", "messages"),
    field('"messages": [[]]', "invalid_value", "messages[0]"),
    field('"mood": 1', "unknown_parameter", "mood"),
    field('"max_tokens": 2, "max_tokens": "x"', "invalid_value", "max_tokens"),
    # Halves of surrogate pairs, which no text in UTF-8 can have.
    field('"user": "\\ud800"', "invalid_value", "user"),
    field('"stop": ["x", "\\ud800"]', "invalid_value", "stop[1]"),
    field(
        '"messages": [{"role": "user", "content": "\\udfff"}]',
        "invalid_value",
        "messages[0].content",
    ),
    field('"metadata": {"\\ud800": "x"}', "invalid_value", "metadata"),
    field('"\\ud800": 1', "unknown_parameter", "\\ud800"),
    Row(
        "product with too many digits",
        post(
            json.dumps(TEXT | {"prompt": ["a"] * 16})[:-1].encode()
            + b', "n": '
            + b"9" * 4300
            + b"}",
            path=COMPLETIONS,
        ),
        400,
        "invalid_value",
        "n",
    ),
    Row(
        "token that is too large",
        post(json.dumps(TEXT | {"prompt": [2**31]}).encode(), path=COMPLETIONS),
        400,
        "invalid_value",
        "prompt[0]",
    ),
]
SENT = [
    Row("in chunks", chunked(chat()), 200),
    Row("chunks without an end", chunked(b"{", end=b""), 408, "body_timeout"),
    Row("chunk without a size", chunked(b"{", end=b"zz\r\n"), 400, "bad_request"),
    Row("long trailers", chunked(chat(), end=b"0\r\n" + b"X: y\r\n" * 300_000), CLOSED),
    Row("long trailer", chunked(chat(), end=b"0\r\nX: " + b"y" * 2**21), CLOSED),
    Row("length too long", post(chat(), length=len(chat()) + 1), 408, "body_timeout"),
    # The rest looks like a second request, which may not come before the answer.
    Row("length too short", post(chat(), length=10), CLOSED),
    Row("length that is no number", post(chat(), length="abc"), 400, "bad_request"),
    Row("negative length", post(chat(), length=-1), 400, "bad_request"),
    Row("two lengths", post(chat(), "Content-Length: 3"), 400, "bad_request"),
    Row("length and chunks", chunked(chat(), b"", "Content-Length: 3"), 400, "bad_request"),
    Row("length of 100 MB", post(b"", length=10**8), 413, "body_too_large"),
    Row("continue", post(chat(), "Expect: 100-continue"), 200),
    Row("no continue", post(b"", "Expect: 100-continue", length=10**8), 413, "body_too_large"),
    Row("HTTP/1.0", post(chat(), version="1.0"), 200),
    Row("HTTP/1.0 stream", post(chat(stream=True), version="1.0"), 200),
    Row("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), 400, "bad_request"),
    Row("upgrade", post(chat(), "Connection: Upgrade", "Upgrade: h2c"), 400, "invalid_value"),
    *(
        Row(f"{method} {path}", head(method, path), 405, "method_not_allowed")
        for method in ("HEAD", "OPTIONS", "PUT", "TRACE")
        for path in (CHAT, COMPLETIONS, "/v1/models")
    ),
    *(
        Row(path, head("GET", path), 404, "not_found")
        for path in ("/../../etc/passwd", "//v1/models", "/v1/chat/../models", "/%2e%2e/etc/passwd")
    ),
    *(
        Row(path[:30], head("GET", path), 404, "model_not_found", "model")
        for path in ("/v1/models/../../etc/passwd", "/v1/models/%00", "/v1/models/" + "m" * 60_000)
    ),
]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return the path of the gateway's log."""
    return tmp_path_factory.mktemp("gateway") / "log"


@pytest.fixture(scope="module")
def gateway(server, log):
    """Return a gateway that waits for a body for a second."""
    with gateway_of(server, log, "--body-s", "1") as running:
        yield running


def answer_to(gateway, *parts):
    """Send the parts and return status, headers and body; the status CLOSED for no answer."""
    port = int(gateway.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        method = parts[0].partition(b" ")[0].decode(errors="replace")
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:
            pass  # the gateway may refuse before it has read everything
        with http.client.HTTPResponse(connection, method=method) as answer:
            try:
                answer.begin()
            except TimeoutError:
                raise  # a gateway that neither answers nor closes
            except (OSError, http.client.RemoteDisconnected):
                return CLOSED, {}, b""
            return answer.status, answer.headers, answer.read()


@pytest.mark.parametrize("row", [*BODIES, *FIELDS, *SENT], ids=lambda row: row.name)
def test_each_request_has_its_answer(gateway, row):
    """Status, code and field are those of the table, and a short error has OpenAI's form."""
    status, headers, body = answer_to(gateway, row.data)
    assert status == row.status
    # HTTP/1.0 has no chunks.
    assert b"HTTP/1.0" not in row.data or "Transfer-Encoding" not in headers
    if row.code is None or row.data.startswith(b"HEAD"):
        return
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (row.code, row.param)
    assert len(body) < MAX_ERROR_BYTES


def test_body_may_come_byte_by_byte(gateway):
    """It is read to its end."""
    parts = [bytes([byte]) for byte in post(chat())]
    assert answer_to(gateway, b"".join(parts[:20]), *parts[20:])[0] == 200


def test_gateway_goes_on_after_all_of_them(server, gateway, log):
    """The next request is answered, nothing runs any more, and the log has no traceback."""
    status, _, body = answer_to(gateway, post(chat()))
    assert (status, json.loads(body)["usage"]["completion_tokens"]) == (200, 2)
    # The question itself counts.
    wait_for(lambda: gateway.metric("specdec_gateway_running_requests") == 1, 10)
    wait_for(lambda: num_inflight(server) == 0, 10)
    assert gateway.process.poll() is None
    assert "Traceback" not in log.read_text()
