"""A real gateway on a free port, in front of a double of Triton."""

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from specdec.gateway.settings import GatewayLimits, GatewaySettings
from specdec.gateway.worker import gateway_server
from tests.doubles.triton_stream import TritonStream, said
from tests.waiting import wait_for

QUESTION = {"model": "specdec", "messages": [{"role": "user", "content": "hi"}]}
STATISTICS = '{"num_spec_steps": 2, "mean_acceptance_length": 1.5}'


def greeting(_inputs):
    """Answer in three responses, of which the second has a token without text."""
    yield said("Grü", [1, 2])
    yield said("", [3])
    yield said(
        "ße",
        [4],
        finish_reason="stop",
        num_input_tokens=7,
        num_output_tokens=4,
        speculative_decoding=STATISTICS,
    )


class Answer:
    """An HTTP answer."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        """The values of the server-sent events; the last one may be the text [DONE]."""
        parts = self.body.decode().split("\n\n")
        assert parts.pop() == ""
        assert all(part.startswith("data: ") for part in parts)
        texts = [part.removeprefix("data: ") for part in parts]
        return [text if text == "[DONE]" else json.loads(text) for text in texts]


class Gateway:
    """A running gateway, and the Triton behind it."""

    def __init__(self, triton, port, server):
        self.triton = triton
        self.port = port
        self.server = server
        self.guard = server.config.app

    def ask(self, path="/v1/chat/completions", body=None, *, data=None, **headers):
        """Return the answer to a POST of `body` as JSON or of `data`, or to a GET without both."""
        if body is not None:
            data = json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            names.setdefault("Content-Type", "application/json")
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, names)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())

    def chat(self, **fields):
        """Return the answer to a chat with these fields."""
        return self.ask(body=QUESTION | fields)

    def connect(self):
        """Return a socket to the gateway."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


@contextmanager
def running(answer=greeting, *, limits=None, **settings):
    """Yield a Gateway whose Triton answers by `answer`."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with TritonStream(answer) as triton:
        given = GatewaySettings(
            server=triton.address, limits=GatewayLimits(**(limits or {})), **settings
        )
        servers = []

        async def serve():
            servers.append(gateway_server(given))
            await servers[0].serve([listener])

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        wait_for(lambda: servers and servers[0].started)
        try:
            yield Gateway(triton, port, servers[0])
        finally:
            servers[0].should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def shared():
    """Return a gateway with a greeting Triton, for tests that change neither."""
    with running() as gateway:
        yield gateway
