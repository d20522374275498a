"""When a client hangs up or its deadline passes, its slot is freed and the engines stop."""

import time

import pytest

from specdec.clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError
from tests.server.support.live import is_idle, metrics, num_inflight
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

EVERY_ENGINE = pytest.mark.engines("torch", "compiled", "inside")
LONG = {"text_input": COUNT, "max_tokens": 4000}
DRAFTERS = ("none", "lookup", "draft")
ENGINES_OWN = "nv_trt_llm_request_metrics"
WITHIN_S = 10.0
"""Longest wait in seconds for an end of work. An idle machine takes one second; other work may
share the cores."""


def open_client(server, protocol):
    """Return a client of the server over gRPC or HTTP."""
    if protocol == "grpc":
        return GrpcClient(server.grpc_url, timeout_s=120.0)
    return HttpClient(f"http://{server.http_url}", timeout_s=120.0)


@pytest.fixture(autouse=True)
def nothing_is_left(server):
    """Check after each test that no request is in flight and no engine works."""
    yield
    wait_for(lambda: num_inflight(server) == 0, WITHIN_S)
    # Compiled engines report how many requests they have; ours do not.
    wait_for(lambda: not any(metrics(server, ENGINES_OWN).values()), WITHIN_S)
    wait_for(lambda: is_idle(server), 3 * WITHIN_S)


@EVERY_ENGINE
@pytest.mark.parametrize(
    ("protocol", "drafter"),
    [("grpc", "none"), ("grpc", "lookup"), ("grpc", "draft"), ("http", "draft")],
)
def test_hanging_up_ends_the_work(server, protocol, drafter):
    """Closing a gRPC stream or a `generate_stream` frees the slot, with and without speculation."""
    with open_client(server, protocol) as client:
        chunks = client.stream(GenerationRequest(**LONG, drafter=drafter))
        next(chunks)
        wait_for(lambda: num_inflight(server) == 1, WITHIN_S)

        chunks.close()

        wait_for(lambda: num_inflight(server) == 0, WITHIN_S)


@EVERY_ENGINE
@pytest.mark.parametrize("drafter", ["none", "lookup"])
def test_hanging_up_ends_no_other_request_with_the_same_id(server, drafter):
    """A request gets its whole answer while three others with its id are cancelled.

    Clients choose the ids themselves, so two of them may choose the same.
    """
    same = {"text_input": COUNT, "drafter": drafter, "request_id": "1"}
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        whole = GenerationRequest(**same, max_tokens=32)
        expected = client.generate(whole).token_ids
        leaving = [client.stream(GenerationRequest(**same, max_tokens=4000)) for _ in range(3)]
        for chunks in leaving:
            next(chunks)
        staying = client.stream(whole)
        answer = list(next(staying).token_ids)
        for chunks in leaving:
            chunks.close()
        answer += [token for chunk in staying for token in chunk.token_ids]

        assert tuple(answer) == expected
        assert len(answer) == whole.max_tokens


@EVERY_ENGINE
def test_deadline_ends_a_plain_generate(server):
    """A deadline ends a request to `generate`, whose hang-up Triton would not notice."""
    with HttpClient(f"http://{server.http_url}", timeout_s=120.0) as client:
        start_s = time.monotonic()
        with pytest.raises(SpecdecError, match="deadline_ms is 700; passed: ") as caught:
            client.generate(GenerationRequest(**LONG, deadline_ms=700))
        elapsed_s = time.monotonic() - start_s

    assert caught.value.error_type == "deadline_exceeded"
    assert 0.7 <= elapsed_s < 0.7 + WITHIN_S


def test_deadline_ends_a_stream(server):
    """The client gets the tokens confirmed in time, then the error with its gRPC code."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        chunks = client.stream(GenerationRequest(**LONG, deadline_ms=2500))
        assert next(chunks).token_ids
        with pytest.raises(SpecdecError) as caught:
            list(chunks)

    assert caught.value.error_type == "deadline_exceeded"
    assert caught.value.status == "UNAVAILABLE"


def test_deadline_that_is_kept_changes_nothing(server):
    """A request that ends before its deadline gets its whole answer."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        request = GenerationRequest(text_input=COUNT, max_tokens=4, deadline_ms=100_000)

        assert len(client.generate(request).token_ids) == 4


def test_many_clients_that_hang_up_free_all_their_slots(server):
    """After nine clients hang up in mid-answer, no slot is taken and the next request is served."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        streams = [
            client.stream(GenerationRequest(**LONG, drafter=drafter)) for drafter in 3 * DRAFTERS
        ]
        for chunks in streams:
            next(chunks)
        wait_for(lambda: num_inflight(server) == len(streams), WITHIN_S)
        for chunks in streams:
            chunks.close()
        wait_for(lambda: num_inflight(server) == 0, 2 * WITHIN_S)

        assert client.generate(GenerationRequest(text_input="x", max_tokens=1)).token_ids
