"""At the limit of requests in flight, one more is refused at once; admitted ones are served."""

import time
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from specdec.clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError, collect
from tests.server.support.faulty import INFLIGHT_LIMIT
from tests.server.support.live import metrics, num_inflight
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

ADMITTED = GenerationRequest(text_input=COUNT, max_tokens=128, drafter="none")
ONE_MORE = GenerationRequest(text_input=COUNT, max_tokens=1)
AT_ONCE_S = 5.0
"""Longest time in seconds for a refusal; an idle machine takes a few milliseconds."""


def num_shed(server):
    """Return the number of requests refused as `overloaded` so far."""
    return metrics(server).get(("specdec_shed_total", ("reason=overloaded",)), 0.0)


def test_limit_is_kept_exactly(faulty_server):
    """Requests up to the limit get their whole answers; each further one is refused and counted."""
    before = num_shed(faulty_server)
    with (
        GrpcClient(faulty_server.grpc_url, timeout_s=240.0) as client,
        HttpClient(f"http://{faulty_server.http_url}", timeout_s=240.0) as http,
        ExitStack() as leaving,
    ):
        expected = client.generate(ADMITTED)
        admitted = [
            leaving.enter_context(closing(client.stream(ADMITTED))) for _ in range(INFLIGHT_LIMIT)
        ]
        first = [next(chunks) for chunks in admitted]

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

        for head, chunks in zip(first, admitted, strict=True):
            assert collect([head, *chunks]).token_ids == expected.token_ids
        assert client.generate(ONE_MORE).token_ids
    wait_for(lambda: num_shed(faulty_server) == before + 4)
    # Two orchestrators, each with this limit.
    assert metrics(faulty_server)["specdec_inflight_limit", ()] == 2 * INFLIGHT_LIMIT


def test_refused_request_takes_no_slot(faulty_server):
    """After many more bad requests than slots, every slot is free."""
    with GrpcClient(faulty_server.grpc_url, timeout_s=120.0) as client:
        for _ in range(3 * INFLIGHT_LIMIT):
            with pytest.raises(SpecdecError, match="max_tokens"):
                client.generate(GenerationRequest(text_input="x", max_tokens=0))
            # This error is found only after the admission.
            with pytest.raises(SpecdecError, match="8192"):
                client.generate(GenerationRequest(text_input="x", max_tokens=9000))

        assert client.generate(ONE_MORE).token_ids
    wait_for(lambda: num_inflight(faulty_server) == 0)


def test_one_tenant_cannot_take_all_slots(faulty_server):
    """A tenant with three of four slots gets no more; another tenant's request is served."""
    mine = replace(ADMITTED, tenant="flooding")
    with GrpcClient(faulty_server.grpc_url, timeout_s=240.0) as client, ExitStack() as leaving:
        for _ in range(INFLIGHT_LIMIT - 1):
            next(leaving.enter_context(closing(client.stream(mine))))

        with pytest.raises(SpecdecError, match="3 requests of tenant 'flooding' are in flight"):
            client.generate(replace(ONE_MORE, tenant="flooding"))
        assert client.generate(replace(ONE_MORE, tenant="other")).token_ids
    wait_for(lambda: num_inflight(faulty_server) == 0)


def test_drafter_or_k_of_a_request_is_obeyed_under_load(server):
    """Beside other requests, only `auto` may run without speculation; the text stays the same."""
    asked = GenerationRequest(
        text_input="one two three one two three one two", max_tokens=16, return_perf_metrics=True
    )
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client, ExitStack() as leaving:
        expected = client.generate(asked)
        for _ in range(2):
            others = GenerationRequest(text_input=COUNT, max_tokens=4000, drafter="none")
            next(leaving.enter_context(closing(client.stream(others))))

        beside_others = client.generate(asked)
        named = client.generate(replace(asked, drafter="lookup"))
        counted = client.generate(replace(asked, num_draft_tokens=4))

    assert named.end.total_draft_tokens > 0
    assert counted.end.total_draft_tokens > 0
    answers = (expected, beside_others, named, counted)
    assert len({each.token_ids for each in answers}) == 1


def test_auto_uses_no_draft_model_for_a_short_answer_to_a_long_prompt(server):
    """Reading the prompt would take longer than drafts can save; a request can still name it."""
    numbers = list(range(1000, 1400))
    fields = {"input_ids": numbers, "max_tokens": 12, "return_perf_metrics": True, "tenant": "long"}
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        asked = [
            client.generate(GenerationRequest(**fields, drafter=drafter)).end
            for drafter in ("auto", "draft")
        ]

    used = ["draft" in final.speculative_decoding["drafters"] for final in asked]
    assert used == [False, True]
