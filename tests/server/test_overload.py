"""At the in-flight limit one more is refused at once, and nobody who was admitted suffers."""

import time
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError, collect
from tests.server.faulty import INFLIGHT_LIMIT
from tests.server.live import (
    metrics,
    num_inflight,
)
from tests.server.prompts import COUNT
from tests.waiting import wait_for

ADMITTED = GenerationRequest(text_input=COUNT, max_tokens=300, drafter="none")
ONE_MORE = GenerationRequest(text_input=COUNT, max_tokens=1)
AT_ONCE_S = 5.0
"""A few milliseconds on an idle machine."""


def num_shed(server):
    """Return how many requests were shed so far."""
    return metrics(server).get(("specdec_shed_total", ("reason=overloaded",)), 0.0)


def test_limit_is_kept_exactly(faulty_server):
    """As many as the limit are served to their ends; each one more is refused and counted."""
    before = num_shed(faulty_server)
    with (
        GrpcClient(faulty_server.grpc_url, timeout_s=240.0) as client,
        HttpClient(f"http://{faulty_server.http_url}", timeout_s=240.0) as http,
        ExitStack() as leaving,
    ):
        alone = client.generate(ADMITTED)
        crowd = [
            leaving.enter_context(closing(client.stream(ADMITTED))) for _ in range(INFLIGHT_LIMIT)
        ]
        first = [next(chunks) for chunks in crowd]

        for one_more in (client.generate, http.generate) * 2:
            start_s = time.monotonic()
            with pytest.raises(SpecdecError) as caught:
                one_more(ONE_MORE)
            assert time.monotonic() - start_s < AT_ONCE_S
            assert caught.value.error_type == "overloaded"
            assert "4 requests are in flight; the limit is 4" in caught.value.message
            if one_more == client.generate:
                assert caught.value.status == "UNAVAILABLE"
        wait_for(lambda: num_inflight(faulty_server) == INFLIGHT_LIMIT)

        for head, chunks in zip(first, crowd, strict=True):
            assert collect([head, *chunks]).token_ids == alone.token_ids
        assert client.generate(ONE_MORE).token_ids
    wait_for(lambda: num_shed(faulty_server) == before + 4)
    assert metrics(faulty_server)["specdec_inflight_limit", ()] == 2 * INFLIGHT_LIMIT  # two models


def test_refused_request_takes_no_slot(faulty_server):
    """Bad requests, many more than the limit, leave every slot free."""
    with GrpcClient(faulty_server.grpc_url, timeout_s=120.0) as client:
        for _ in range(3 * INFLIGHT_LIMIT):
            with pytest.raises(SpecdecError, match="max_tokens"):
                client.generate(GenerationRequest(text_input="x", max_tokens=0))
            with pytest.raises(SpecdecError, match="8192"):  # found after admission
                client.generate(GenerationRequest(text_input="x", max_tokens=9000))

        assert client.generate(ONE_MORE).token_ids
    wait_for(lambda: num_inflight(faulty_server) == 0)


def test_tenant_leaves_a_place_to_others(faulty_server):
    """A tenant's flood is refused at three quarters of the places; another's request is served."""
    mine = replace(ADMITTED, tenant="flooding")
    with GrpcClient(faulty_server.grpc_url, timeout_s=240.0) as client, ExitStack() as leaving:
        for _ in range(INFLIGHT_LIMIT - 1):
            next(leaving.enter_context(closing(client.stream(mine))))

        with pytest.raises(SpecdecError, match="3 requests of tenant 'flooding' are in flight"):
            client.generate(replace(ONE_MORE, tenant="flooding"))
        assert client.generate(replace(ONE_MORE, tenant="other")).token_ids
    wait_for(lambda: num_inflight(faulty_server) == 0)


def test_what_a_request_asks_for_holds_beside_others(server):
    """`auto` may leave it to the target; what names a drafter or a k is obeyed; the text stays."""
    asked = GenerationRequest(
        text_input="one two three one two three one two", max_tokens=24, return_perf_metrics=True
    )
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client, ExitStack() as leaving:
        alone = client.generate(asked)
        for _ in range(2):
            others = GenerationRequest(text_input=COUNT, max_tokens=4000, drafter="none")
            next(leaving.enter_context(closing(client.stream(others))))

        crowded = client.generate(asked)
        named = client.generate(replace(asked, drafter="lookup"))
        counted = client.generate(replace(asked, num_draft_tokens=4))

    assert named.final.total_draft_tokens > 0
    assert counted.final.total_draft_tokens > 0
    assert crowded.token_ids == alone.token_ids == named.token_ids == counted.token_ids


def test_auto_asks_no_draft_engine_to_read_a_long_prompt_for_a_short_answer(server):
    """Reading it would take longer than guesses can save; who names the engine gets it."""
    numbers = list(range(1000, 1400))
    fields = {"input_ids": numbers, "max_tokens": 12, "return_perf_metrics": True, "tenant": "long"}
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        asked = [
            client.generate(GenerationRequest(**fields, drafter=drafter)).final
            for drafter in ("auto", "draft")
        ]

    used = ["draft" in final.speculative_decoding["drafters"] for final in asked]
    assert used == [False, True]
