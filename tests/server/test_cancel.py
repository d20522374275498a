"""Whoever goes away takes the work along: the slot is free and the engines stop."""

import time

import pytest

from clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError
from tests.server.live import (
    is_idle,
    metrics,
    num_inflight,
)
from tests.server.prompts import COUNT
from tests.waiting import wait_for

LONG = {"text_input": COUNT, "max_tokens": 4000}
WAYS = [{"drafter": "none"}, {"drafter": "lookup"}, {"drafter": "draft"}]
ENGINES_OWN = "nv_trt_llm_request_metrics"
WITHIN_S = 10.0
"""A second on an idle machine; generous, because other work may share the cores."""


def open_client(server, protocol):
    """Return a client of that transport."""
    if protocol == "grpc":
        return GrpcClient(server.grpc_url, timeout_s=120.0)
    return HttpClient(f"http://{server.http_url}", timeout_s=120.0)


@pytest.fixture(autouse=True)
def nothing_is_left(server):
    """After each test no request is in flight and no engine works."""
    yield
    wait_for(lambda: num_inflight(server) == 0, WITHIN_S)
    # Compiled engines say themselves how many requests they have; ours say nothing.
    wait_for(lambda: not any(metrics(server, ENGINES_OWN).values()), WITHIN_S)
    wait_for(lambda: is_idle(server), 3 * WITHIN_S)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["drafter"])
def test_hanging_up_ends_the_work(server, protocol, way):
    """A cancelled gRPC stream, a closed `generate_stream`: free at once, in every mode."""
    with open_client(server, protocol) as client:
        chunks = client.stream(GenerationRequest(**LONG, **way))
        next(chunks)
        wait_for(lambda: num_inflight(server) == 1, WITHIN_S)

        chunks.close()

        wait_for(lambda: num_inflight(server) == 0, WITHIN_S)


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way["drafter"])
def test_hanging_up_harms_nobody_else(server, way):
    """Of two requests with the same id, one cancelled, the other gets its whole answer.

    Ids are the clients' own: two of them may choose the same.
    """
    options = {"text_input": COUNT, "max_tokens": 48, "request_id": "1"}
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        whole = GenerationRequest(**options, **way)
        expected = client.generate(whole).token_ids
        leaving = [
            client.stream(GenerationRequest(**LONG, **way, request_id="1")) for _ in range(3)
        ]
        for chunks in leaving:
            next(chunks)
        staying = client.stream(whole)
        answer = list(next(staying).token_ids)
        for chunks in leaving:
            chunks.close()
        answer += [token for chunk in staying for token in chunk.token_ids]

        assert tuple(answer) == expected
        assert len(answer) == options["max_tokens"]


def test_deadline_ends_a_plain_generate(server):
    """Nobody notices a client of `generate` that hangs up: its deadline ends the work."""
    with HttpClient(f"http://{server.http_url}", timeout_s=120.0) as client:
        start_s = time.monotonic()
        with pytest.raises(SpecdecError, match="deadline_ms is 700; passed: ") as caught:
            client.generate(GenerationRequest(**LONG, deadline_ms=700))
        elapsed_s = time.monotonic() - start_s

    assert caught.value.error_type == "deadline_exceeded"
    assert 0.7 <= elapsed_s < 0.7 + WITHIN_S


def test_deadline_ends_a_stream(server):
    """What was confirmed in time arrives; then comes the error, with its code over gRPC."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        chunks = client.stream(GenerationRequest(**LONG, deadline_ms=5000))
        assert next(chunks).token_ids
        with pytest.raises(SpecdecError) as caught:
            list(chunks)

    assert caught.value.error_type == "deadline_exceeded"
    assert caught.value.status == "UNAVAILABLE"


def test_deadline_that_is_kept_changes_nothing(server):
    """A request that is ready in time never hears of its deadline."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        request = GenerationRequest(text_input=COUNT, max_tokens=4, deadline_ms=100_000)

        assert len(client.generate(request).token_ids) == 4


def test_many_who_leave_free_every_slot(server):
    """A crowd that hangs up in mid-answer leaves nothing behind, and the next one is served."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        crowd = [client.stream(GenerationRequest(**LONG, **WAYS[n % 3])) for n in range(9)]
        for chunks in crowd:
            next(chunks)
        wait_for(lambda: num_inflight(server) == 9, WITHIN_S)
        for chunks in crowd:
            chunks.close()
        wait_for(lambda: num_inflight(server) == 0, 2 * WITHIN_S)

        assert client.generate(GenerationRequest(text_input="x", max_tokens=1)).token_ids
