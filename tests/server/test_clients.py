"""The clients and their commands work with a live server."""

import re
import signal
import subprocess
import sys
import time

import pytest
import urllib3

from clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError, collect

# The answer repeats the prompt, so that the target accepts some tokens of any drafter.
REPEAT = "Repeat this line four times: the ship sails at noon and the ship returns at night."
CHAT = [{"role": "user", "content": REPEAT}]
# The answer is so long that a test hangs up before it ends.
COUNT = "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen,"
LONG = GenerationRequest(text_input=COUNT, max_tokens=2000)


@pytest.fixture(params=["grpc", "http"])
def client(request, server):
    """Return a client over gRPC or HTTP; each test runs with both."""
    if request.param == "grpc":
        opened = GrpcClient(server.grpc_url, timeout_s=60.0)
    else:
        opened = HttpClient(f"http://{server.http_url}", timeout_s=60.0)
    with opened:
        yield opened


def gauge(server, name):
    """Return the sum of a metric family's values on Triton's metrics page."""
    lines = urllib3.request("GET", server.metrics_url).data.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split("{")[0] == name)


def wait_until_idle(server, limit_s=1.0):
    """Return the seconds until no request is in flight; None after `limit_s` seconds."""
    start = time.monotonic()
    while time.monotonic() - start < limit_s:
        if gauge(server, "specdec_inflight_requests") == 0:
            return time.monotonic() - start
        time.sleep(0.02)
    return None


def is_busy(server, limit_s=2.0):
    """Return whether a request is in flight within `limit_s` seconds; the gauge lags a little."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if gauge(server, "specdec_inflight_requests") >= 1:
            return True
        time.sleep(0.02)
    return False


def test_model_is_ready(client):
    """The client reports that the model is ready."""
    assert client.is_ready()


def test_streamed_answer_is_the_whole_answer(client):
    """Joined chunks have the text and tokens of the answer in one piece, and the right count."""
    request = GenerationRequest(messages=CHAT, max_tokens=48, return_perf_metrics=True)

    chunks = list(client.stream(request))
    streamed, whole = collect(chunks), client.generate(request)

    assert len(chunks) > 1
    assert (streamed.text, streamed.token_ids) == (whole.text, whole.token_ids)
    assert streamed.final.num_output_tokens == len(streamed.token_ids)
    assert streamed.final.finish_reason in {"stop", "length"}


def test_sources_tell_drafted_tokens_apart(client):
    """As many tokens have a drafter's number as the statistics count accepted draft tokens.

    Without speculation all tokens have the source 0.
    """
    request = GenerationRequest(
        messages=CHAT, max_tokens=64, num_draft_tokens=4, return_perf_metrics=True
    )

    answer = client.generate(request)

    num_from_draft = sum(source > 0 for source in answer.sources)
    assert num_from_draft > 0
    assert num_from_draft == answer.final.total_accepted_draft_tokens
    off = client.generate(GenerationRequest(messages=CHAT, max_tokens=64, num_draft_tokens=0))
    assert set(off.sources) == {0}
    assert off.token_ids == answer.token_ids


def test_both_transports_give_the_same_answer(server):
    """Streams over HTTP and gRPC have the same text and tokens."""
    request = GenerationRequest(messages=CHAT, max_tokens=32)
    with GrpcClient(server.grpc_url) as grpc, HttpClient(server.http_url) as http:
        by_grpc, by_http = collect(grpc.stream(request)), collect(http.stream(request))

    assert by_grpc.token_ids == by_http.token_ids
    assert by_grpc.text == by_http.text


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(
    "fields",
    [{"text_input": "x", "max_tokens": 0}, {"text_input": ""}, {}, {"messages": "{"}],
)
def test_bad_requests_are_refused_with_their_error_type(client, fields, is_streamed):
    """The client gets `invalid_request` with its code, and the next request is served."""
    request = GenerationRequest(**fields)

    with pytest.raises(SpecdecError) as caught:
        collect(client.stream(request)) if is_streamed else client.generate(request)

    assert caught.value.error_type == "invalid_request"
    assert caught.value.status == "INVALID_ARG"
    assert client.generate(GenerationRequest(text_input="x", max_tokens=1)).token_ids


def test_hanging_up_frees_the_slot(client, server):
    """When the caller closes the iterator, the slot is free within a second."""
    chunks = client.stream(LONG)
    next(chunks)
    assert is_busy(server)

    chunks.close()

    assert wait_until_idle(server) is not None


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_killed_client_frees_the_slot(server, protocol):
    """When a client is killed in mid-stream, the slot is free within a second."""
    url = server.grpc_url if protocol == "grpc" else f"http://{server.http_url}"
    command = [sys.executable, "-u", "-m", "clients.generate", COUNT, "--max-tokens", "2000"]
    process = subprocess.Popen(
        [*command, "--protocol", protocol, "--url", url], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.read(1)
        assert is_busy(server)

        process.send_signal(signal.SIGKILL)

        assert wait_until_idle(server) is not None


def test_timeout_of_the_client_ends_the_work(client, server):
    """The caller gets `client_timeout`, and the slot is free within a second."""
    with pytest.raises(SpecdecError) as caught:
        for _ in client.stream(LONG, timeout_s=0.5):
            pass

    assert caught.value.error_type == "client_timeout"
    assert wait_until_idle(server) is not None


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

    generated = run_command("clients.generate", REPEAT, "--chat", *where)
    chatted = run_command("clients.chat", *where, stdin=f"{REPEAT}\n")
    refused = run_command("clients.generate", "x", *where[:4], "--max-tokens", "0")

    assert generated.returncode == 0, generated.stderr
    assert "tokens/s" in generated.stderr
    assert chatted.returncode == 0, chatted.stderr
    assert "32 tokens" in chatted.stdout or "end: stop" in chatted.stdout
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: invalid_request: ")
    assert "Traceback" not in refused.stderr


def test_chat_marks_exactly_the_drafted_tokens(server):
    """With marks, the chat prints the text that it prints without marks, plus the brackets."""
    where = ("--url", server.grpc_url, "--max-tokens", "48", "--drafter", "draft")

    plain = run_command("clients.chat", *where, "--marks", "none", stdin=f"{REPEAT}\n").stdout
    marked = run_command("clients.chat", *where, "--marks", "text", stdin=f"{REPEAT}\n").stdout

    answer = plain.rpartition("\n[")[0]
    without_legend = marked.partition("\n")[2].rpartition("\n[")[0]
    assert "⟨" in without_legend
    assert re.sub(r"⟨(?:\d+:)?(.*?)⟩(?:\d+/\d+)?", r"\1", without_legend) == answer
