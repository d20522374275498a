"""Keys, limits and drain of a gateway, and clients that hang up or do not read."""

import itertools
import json
import logging
import socket
import threading
import time

import pytest

from specdec.errors import ConfigurationError
from specdec.gateway.transport.keys import ApiKeys
from tests.doubles.triton_stream import said
from tests.unit.gateway.conftest import QUESTION, greeting, running
from tests.waiting import wait_for

KEYS = "# customers\nkey-of-nobody-in-particular\n\nkey-of-the-red-tenant red\n"


def raw_request(path="/v1/chat/completions", body=QUESTION, **fields):
    """Return the bytes of a POST."""
    data = json.dumps(body | fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _is_closed_after(connection, parts):
    """Send the parts, 20 ms apart; return whether the connection is closed meanwhile."""
    connection.settimeout(0.02)
    for part in parts:
        try:
            connection.sendall(bytes(part))
            if connection.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def endless(_inputs):
    """Answer without an end; the test hangs up."""
    while True:
        yield said("word " * 200, [1])
        yield 0.002


def test_key_decides_who_may_ask(tmp_path):
    """Its tenant reaches the model; `user` never sets it."""
    file = tmp_path / "keys"
    file.write_text(KEYS)
    with running(greeting, api_key_file=file) as gateway:

        def ask(authorization):
            return gateway.ask(body=QUESTION | {"user": "blue"}, Authorization=authorization)

        assert ask("Bearer key-of-the-red-tenant").status == 200
        assert gateway.triton.asked[-1][1]["tenant"] == "red"
        assert ask("Bearer key-of-nobody-in-particular").status == 200
        assert "tenant" not in gateway.triton.asked[-1][1]
        num_before = len(gateway.triton.asked)
        for wrong in ("", "Bearer ", "Bearer key-of-the-red-tenan", "key-of-the-red-tenant"):
            answer = ask(wrong)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert gateway.ask("/v1/models").status == 401
        assert gateway.ask("/health").status == 200
        assert len(gateway.triton.asked) == num_before


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "no API key"), ("short", "at least 16"), (f"{'k' * 16} a b", "line 1 .* 3 words")],
)
def test_key_file_that_is_wrong_is_refused(tmp_path, text, reason):
    """The gateway does not start without the protection that was asked for."""
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=reason):
        ApiKeys.load(file)
    with pytest.raises(ConfigurationError, match="cannot read"):
        ApiKeys.load(tmp_path / "missing")


def test_long_body_is_refused():
    """The client reads the refusal, because the rest of the body is taken and discarded."""
    with running(limits={"max_body_bytes": 1000}) as gateway:
        assert gateway.chat(user="x" * 200).status == 200
        for size in (1000, 3500, 100_000):
            answer = gateway.chat(task="x" * size)
            assert (answer.status, answer.error["code"]) == (413, "body_too_large")


def test_body_that_comes_too_slowly_is_refused():
    """Its connection is closed."""
    with running(limits={"body_s": 0.3}) as gateway, gateway.connect() as connection:
        data = raw_request()
        connection.sendall(data[:-20])
        with connection.makefile("rb") as answer:
            text = answer.read()
    assert b" 408 " in text
    assert b"body_timeout" in text


def test_headers_that_come_too_slowly_end_the_connection():
    """One byte at a time does not keep it open."""
    with running(limits={"header_s": 0.3}) as gateway, gateway.connect() as connection:
        begun_s = time.monotonic()
        assert _is_closed_after(connection, ([byte] for byte in raw_request()))
        assert time.monotonic() - begun_s < 2


def test_connections_have_a_limit():
    """Further ones are closed at once, and others go on."""
    with running(limits={"max_connections": 3}) as gateway:
        held = [gateway.connect() for _ in range(3)]
        wait_for(lambda: len(gateway.server.server_state.connections) == 3)
        with pytest.raises(OSError, match=r"reset|closed|Remote|Broken pipe"):
            gateway.chat()
        held.pop().close()
        wait_for(lambda: len(gateway.server.server_state.connections) == 2)
        assert gateway.chat().status == 200
        for each in held:
            each.close()


def test_requests_have_a_limit():
    """One more is refused before its body is read."""
    release = threading.Event()

    def answer(inputs):
        yield release
        yield from greeting(inputs)

    with running(answer, limits={"max_requests": 2}) as gateway:
        threads = [threading.Thread(target=gateway.chat) for _ in range(2)]
        for each in threads:
            each.start()
        wait_for(lambda: gateway.triton.num_open == 2)
        refused = gateway.chat()
        assert (refused.status, refused.error["code"]) == (429, "overloaded")
        assert refused.headers["Retry-After"] == "1"
        release.set()
        for each in threads:
            each.join()
        assert gateway.chat().status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_hang_up_cancels_the_request(stream):
    """Before the first token, and within a stream."""

    def answer(inputs):
        if inputs["stream"]:
            yield said("a", [1])
        yield threading.Event()

    with running(answer) as gateway:
        with gateway.connect() as connection:
            connection.sendall(raw_request(stream=stream))
            wait_for(lambda: gateway.triton.num_open == 1)
            if stream:
                connection.recv(10)
        wait_for(lambda: gateway.triton.num_open == 0)
        wait_for(lambda: gateway.guard.num_running == 0)
        page = gateway.ask("/metrics").body.decode()
    assert 'specdec_gateway_hang_ups_total{route="/v1/chat/completions"} 1.0' in page


def test_client_that_does_not_read_is_cut_off():
    """Its request is cancelled, and holds no memory beyond what the connection buffers."""
    with running(endless, limits={"send_s": 0.4}) as gateway:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", gateway.port))
        connection.sendall(raw_request(stream=True))
        wait_for(lambda: gateway.triton.num_open == 1)
        wait_for(lambda: gateway.triton.num_open == 0, 20)
        wait_for(lambda: not gateway.server.server_state.connections, 5)
        connection.close()


def test_idle_connections_are_closed():
    """Also after a refusal whose body came late, and after a stray line."""
    with running(limits={"keep_alive_s": 1, "header_s": 1}) as gateway:
        for data in (b"", b"\r\n", raw_request("/v1/nothing")):
            with gateway.connect() as connection:
                connection.sendall(data)
                connection.settimeout(10)
                while connection.recv(10_000):
                    pass


def test_large_headers_end_the_connection():
    """They are not kept in memory."""
    lines = (f"x-{number}: {'x' * 1000}\r\n".encode() for number in range(1000))
    with running() as gateway, gateway.connect() as connection:
        assert _is_closed_after(connection, itertools.chain([b"GET / HTTP/1.1\r\n"], lines))


def test_requests_that_are_sent_ahead_end_the_connection():
    """The one that runs is cancelled, and the others are not read."""
    with running(lambda _: [threading.Event()]) as gateway:
        with gateway.connect() as connection:
            connection.sendall(raw_request())
            wait_for(lambda: gateway.triton.num_open == 1)
            connection.sendall(raw_request() * 1000)
            with pytest.raises(OSError, match="reset"):
                connection.recv(10)
        wait_for(lambda: gateway.triton.num_open == 0)
        wait_for(lambda: gateway.guard.num_running == 0)
        assert len(gateway.triton.asked) == 1


def test_drain_lets_answers_end_and_refuses_others():
    """Readiness goes first; the server ends when nothing runs."""
    release = threading.Event()

    def answer(inputs):
        yield said("a", [1])
        yield release
        yield from greeting(inputs)

    with running(answer) as gateway:
        found = []
        thread = threading.Thread(target=lambda: found.append(gateway.chat(stream=True)))
        thread.start()
        wait_for(lambda: gateway.triton.num_open == 1)
        gateway.server.should_exit = True
        wait_for(lambda: gateway.guard.is_draining)
        refused = gateway.chat()
        assert (refused.status, refused.error["code"]) == (503, "shutting_down")
        assert gateway.ask("/health/ready").status == 503
        release.set()
        thread.join()
        assert found[0].events[-1] == "[DONE]"


def test_each_request_is_a_line_of_json_without_text(caplog):
    """It has the numbers of tokens and times, and nothing of prompt or answer."""
    logger = logging.getLogger("specdec.gateway.transport.access")
    logger.setLevel(logging.INFO)
    with running() as gateway, caplog.at_level(logging.INFO, logger=logger.name):
        gateway.ask(body=QUESTION | {"user": "u7"}, X_Request_Id="id-of-the-client")
        wait_for(lambda: caplog.records)
    line = json.loads(caplog.records[-1].getMessage())
    expected = {"status": 200, "request_id": "id-of-the-client", "user": "u7"}
    expected |= {"prompt_tokens": 7, "completion_tokens": 4, "model": "specdec"}
    assert {name: line[name] for name in expected} == expected
    assert "Grü" not in caplog.text
    assert '"hi"' not in caplog.text


def test_request_id_is_returned(shared):
    """The client's own if it is usable, else a new one."""
    assert shared.ask("/health", X_Request_Id="abc").headers["x-request-id"] == "abc"
    assert len(shared.ask("/health", X_Request_Id="x" * 200).headers["x-request-id"]) == 24


def test_metrics_count_routes_not_paths(shared):
    """Paths of clients do not become labels."""
    for number in range(3):
        shared.ask(f"/strange/{number}")
    page = shared.ask("/metrics").body.decode()
    assert "strange" not in page
    assert 'specdec_gateway_requests_total{route="unknown",status="404"}' in page


def test_openapi_page_lists_the_routes(shared):
    """It is what clients are generated from."""
    paths = shared.ask("/openapi.json").json["paths"]
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/health/ready"} <= set(paths)
