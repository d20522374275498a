"""Colocated engines give the same answers, and stop when a client hangs up."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec.clients import GenerationRequest, GrpcClient
from tests.server.support.live import num_inflight
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

PROMPT = [{"role": "user", "content": "Tell me about a ship. Then tell me the same story again."}]
WAYS = [
    {"drafter": "none"},
    {"drafter": "auto"},
    {"drafter": "lookup", "num_draft_tokens": 8},
    {"drafter": "draft", "num_draft_tokens": 4},
    {"drafter": "tree", "num_draft_tokens": 3},
    {"drafter": "draft", "verification": "rejection"},
    {"drafter": "draft", "verification": "block"},
]
WITHIN_S = 10.0


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 0.9, "repetition_penalty": 1.2, "min_p": 0.05, "bad_words": ["ship"]},
    ],
    ids=["greedy", "nucleus", "penalties"],
)
def test_placement_changes_no_token(server, colocated, sampling):
    """Each drafter and verification mode gives the tokens and log-probabilities as over BLS."""
    fields = {"messages": PROMPT, "max_tokens": 24, "seed": 11, "return_log_probs": True}
    with GrpcClient(server.grpc_url) as apart, GrpcClient(colocated.grpc_url) as together:
        requests = [
            GenerationRequest(**fields, **sampling, **way, return_perf_metrics=True) for way in WAYS
        ]
        with ThreadPoolExecutor(4) as pool:
            answers = [list(pool.map(each.generate, requests)) for each in (apart, together)]
        for way, there, here in zip(WAYS, *answers, strict=True):
            assert here.token_ids == there.token_ids, way
            assert here.log_probs == there.log_probs, way
            assert here.end.verification == there.end.verification
            figures = here.end.speculative_decoding
            assert figures["round_times"]["target_engine_s"] > 0


@pytest.mark.parametrize("drafter", ["none", "draft"])
def test_hanging_up_ends_the_work(colocated, drafter):
    """The slot is free after the hang-up, and the next request is served."""
    with GrpcClient(colocated.grpc_url, timeout_s=120.0) as client:
        chunks = client.stream(
            GenerationRequest(text_input=COUNT, max_tokens=4000, drafter=drafter)
        )
        next(chunks)
        chunks.close()
        wait_for(lambda: num_inflight(colocated) == 0, WITHIN_S)

        assert client.generate(GenerationRequest(text_input="x", max_tokens=1)).token_ids
