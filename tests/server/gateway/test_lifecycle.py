"""`specdec serve --openai`: the gateway starts, drains and ends with the server."""

import os
import signal
import threading
from pathlib import Path

import openai
import pytest

from specdec.health.processes import all_processes, fault_of
from specdec.launch.triton_server import TritonServer
from tests.server.support.live import MODEL_REPOSITORY, ask_http, num_inflight
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

KEY = "a-key-of-the-red-tenant"


@pytest.fixture
def served(tmp_path):
    """Return a server with a gateway of two workers, which asks for a key."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY} red\n")
    arguments = ("--workers", "2", "--api-key-file", str(keys))
    with TritonServer(
        MODEL_REPOSITORY, has_openai=True, gateway_args=arguments, log_path=tmp_path / "log"
    ) as running:
        yield running


@pytest.fixture
def ask(served):
    """Return a function that asks a question with a long answer; it repeats no request."""
    given = {"model": "specdec", "messages": [{"role": "user", "content": COUNT}], "temperature": 0}
    url = f"{served.openai_url}/v1"
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        yield lambda **more: client.chat.completions.create(**(given | more))


def gateway_pids(server):
    """Return the process ids of the gateway, its parent process first."""
    supervisor = server._process.pid
    parents = [each.pid for each in all_processes() if each.parent == supervisor]
    parents = [pid for pid in parents if "gateway" in command_of(pid)]
    return parents + [each.pid for each in all_processes() if each.parent in parents]


def command_of(pid):
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def is_ready(server):
    """Return whether the gateway says that an answer can come."""
    return ask_http("GET", f"{server.openai_url}/health/ready", retries=False).status == 200


def test_gateway_and_server_live_and_end_together(served, ask):
    """Keys hold; dead gateways and dead servers come back; a stop lets streams end."""
    assert ask(max_tokens=4).usage.completion_tokens == 4
    wrong = {"Authorization": "Bearer wrong"}
    assert ask_http("GET", f"{served.openai_url}/v1/models", headers=wrong).status == 401

    before = gateway_pids(served)
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: not set(before) & {each.pid for each in all_processes()})
    wait_for(lambda: _works(ask))

    os.kill(served.pid, signal.SIGKILL)
    refusal = wait_for(lambda: _refusal_of(ask))
    assert refusal.status_code == 503
    assert refusal.response.headers["retry-after"] == "1"
    wait_for(lambda: _works(ask))

    chunks = ask(max_tokens=160, stream=True)
    next(iter(chunks))
    wait_for(lambda: num_inflight(served) == 1)
    pids, statuses = gateway_pids(served), []
    stopping = threading.Thread(target=lambda: statuses.append(served.stop()))
    stopping.start()
    wait_for(lambda: not is_ready(served))
    *_, last = chunks
    assert last.choices[0].finish_reason == "length"
    stopping.join()
    assert statuses == [0]
    assert not [pid for pid in pids if not fault_of(pid)]


def _refusal_of(ask):
    """Return the error of a request; None if it was answered."""
    try:
        ask(max_tokens=4)
    except openai.APIStatusError as error:
        return error
    return None


def _works(ask):
    try:
        return ask(max_tokens=4).usage.completion_tokens == 4
    except openai.APIError:
        return False
