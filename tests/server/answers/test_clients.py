"""The clients and their commands work with a live server."""

import re
import signal
import subprocess
import sys

import pytest

from specdec.clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError, collect
from tests.server.support.live import num_inflight
from tests.server.support.prompts import CHATS, COUNT, REPEAT
from tests.waiting import wait_for

CHAT = CHATS[0]
"""Messages whose answer repeats them, so that the target accepts some tokens of any drafter."""
WITHIN_S = 10.0
"""Longest wait in seconds for a slot to be free; an idle machine takes a tenth of a second."""


@pytest.fixture(params=["grpc", "http"])
def client(request, server):
    """Return a client over gRPC or HTTP; each test runs with both."""
    if request.param == "grpc":
        opened = GrpcClient(server.grpc_url, timeout_s=60.0)
    else:
        opened = HttpClient(f"http://{server.http_url}", timeout_s=60.0)
    with opened:
        yield opened


def test_model_is_ready(client):
    """The client reports that the model is ready."""
    assert client.is_ready()


def test_streamed_answer_is_the_whole_answer(server):
    """Joined chunks have the text and tokens of the answer in one piece, and the right count.

    They are the same over gRPC and HTTP.
    """
    request = GenerationRequest(messages=CHAT, max_tokens=32)
    with GrpcClient(server.grpc_url) as grpc, HttpClient(f"http://{server.http_url}") as http:
        chunks = {each: list(each.stream(request)) for each in (grpc, http)}
        answers = [each.generate(request) for each in (grpc, http)]

    assert min(map(len, chunks.values())) > 1
    answers += map(collect, chunks.values())
    assert len({(each.text, each.token_ids) for each in answers}) == 1
    for each in answers:
        assert each.end.num_output_tokens == len(each.token_ids)
        assert each.end.finish_reason in {"stop", "length"}


def test_sources_tell_drafted_tokens_apart(client):
    """As many tokens have a drafter's number as the statistics count accepted draft tokens.

    Without speculation all tokens have the source 0.
    """
    options = {"messages": CHAT, "max_tokens": 48}
    request = GenerationRequest(**options, num_draft_tokens=4, return_perf_metrics=True)

    answer = client.generate(request)

    num_from_draft = sum(source > 0 for source in answer.sources)
    assert num_from_draft > 0
    assert num_from_draft == answer.end.total_accepted_draft_tokens
    off = client.generate(GenerationRequest(**options, num_draft_tokens=0))
    assert set(off.sources) == {0}
    assert off.token_ids == answer.token_ids


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("fields", [{"text_input": "x", "max_tokens": 0}, {}, {"messages": "{"}])
def test_bad_requests_are_refused_with_their_error_type(client, fields, is_streamed):
    """The client gets `invalid_request` with its code, and the next request is served."""
    request = GenerationRequest(**fields)

    with pytest.raises(SpecdecError) as caught:
        collect(client.stream(request)) if is_streamed else client.generate(request)

    assert caught.value.error_type == "invalid_request"
    assert caught.value.status == "INVALID_ARG"
    assert client.generate(GenerationRequest(text_input="x", max_tokens=1)).token_ids


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_killed_client_frees_the_slot(server, protocol):
    """When a client is killed in mid-stream, its slot is free soon."""
    url = server.grpc_url if protocol == "grpc" else f"http://{server.http_url}"
    command = [
        sys.executable,
        "-u",
        "-m",
        "specdec.clients.generate",
        COUNT,
        "--max-tokens",
        "4000",
    ]
    process = subprocess.Popen(
        [*command, "--protocol", protocol, "--url", url], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.read(1)
        wait_for(lambda: num_inflight(server) == 1, WITHIN_S)

        process.send_signal(signal.SIGKILL)

        wait_for(lambda: num_inflight(server) == 0, WITHIN_S)


def test_timeout_of_the_client_ends_the_work(client, server):
    """The caller gets `client_timeout`, and the slot is free soon."""
    with pytest.raises(SpecdecError) as caught:
        for _ in client.stream(GenerationRequest(text_input=COUNT, max_tokens=4000), timeout_s=0.5):
            pass

    assert caught.value.error_type == "client_timeout"
    wait_for(lambda: num_inflight(server) == 0, WITHIN_S)


def run_command(module, *arguments, stdin=""):
    """Run a client module with arguments and standard input; return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_commands_work_on_a_real_server(server, protocol):
    """`specdec generate` and `specdec chat` print answers and figures over both transports.

    A refused request prints one line without a traceback and exits with 1.
    """
    url = server.grpc_url if protocol == "grpc" else f"http://{server.http_url}"
    where = ("--protocol", protocol, "--url", url, "--max-tokens", "32")

    generated = run_command("specdec.clients.generate", REPEAT, "--chat", *where)
    chatted = run_command("specdec.clients.chat", *where, stdin=f"{REPEAT}\n")
    refused = run_command("specdec.clients.generate", "x", *where[:4], "--max-tokens", "0")

    assert generated.returncode == 0, generated.stderr
    assert "tokens/s" in generated.stderr
    assert chatted.returncode == 0, chatted.stderr
    assert "32 tokens" in chatted.stdout or "end: stop" in chatted.stdout
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: invalid_request: ")
    assert "Traceback" not in refused.stderr


def test_chat_marks_exactly_the_drafted_tokens(server):
    """With marks, the chat prints the text that it prints without marks, plus the brackets."""
    where = ("--url", server.grpc_url, "--max-tokens", "32", "--drafter", "draft")

    plain = run_command(
        "specdec.clients.chat", *where, "--marks", "none", stdin=f"{REPEAT}\n"
    ).stdout
    marked = run_command(
        "specdec.clients.chat", *where, "--marks", "text", stdin=f"{REPEAT}\n"
    ).stdout

    answer = plain.rpartition("\n[")[0]
    without_legend = marked.partition("\n")[2].rpartition("\n[")[0]
    assert "⟨" in without_legend
    assert re.sub(r"⟨(?:\d+:)?(.*?)⟩(?:\d+/\d+)?", r"\1", without_legend) == answer
