"""Drafters that fail and hang inside a live engine cost no request and no slot."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec.builder.config_file import set_parameters
from specdec.clients import GenerationRequest, GrpcClient
from tests.doubles.repository import DOUBLES
from tests.server.support.faulty_drafters import plant_in
from tests.server.support.inside import ENGINES, inside_server
from tests.server.support.live import metrics, num_inflight
from tests.waiting import wait_for

NUM_REQUESTS = {"llmapi": 30, "vllm": 500}
"""Requests to each engine. The double computes row by row, so it gets fewer."""
HANG_UP_SHARE = 0.3
NUM_TOKENS = 24
WITHIN_S = 20.0
MODULES = {"llmapi": "tensorrt_llm_model", "vllm": "vllm_model"}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request):
    """Return the kind of the engine."""
    return request.param


@pytest.fixture(scope="module")
def running(engine, tmp_path_factory):
    """Return a server whose drafters fail."""

    def plant(repository):
        set_parameters(repository / "target", draft_budget_ms="10")
        plant_in(repository / "target", MODULES[engine], DOUBLES / "llm_api")

    with inside_server(engine, tmp_path_factory.mktemp(engine), plant) as started:
        yield started


def test_no_request_fails_and_no_slot_is_lost(running, engine):
    """Almost a third of the clients hang up at different times; all others get all tokens."""
    num_requests = NUM_REQUESTS[engine]
    num_hang_ups = int(HANG_UP_SHARE * num_requests)
    text = "Repeat this three times: the quick brown fox jumps over the lazy dog."

    def ask(number):
        fields = {"messages": [{"role": "user", "content": f"{number}: {text}"}], "stream": True}
        is_leaving = number * num_hang_ups % num_requests < num_hang_ups
        most = 1000 if is_leaving else NUM_TOKENS
        found = 0
        with GrpcClient(running.grpc_url, timeout_s=300.0) as client:
            request = GenerationRequest(**fields, max_tokens=most, min_tokens=most)
            chunks = client.stream(request)
            until_s = time.monotonic() + number % 10 / 5
            for chunk in chunks:
                found += len(chunk.token_ids)
                if is_leaving and time.monotonic() > until_s:
                    chunks.close()
                    return None
        return found

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(num_requests)))
    assert found.count(None) == num_hang_ups
    assert found.count(NUM_TOKENS) == num_requests - num_hang_ups
    wait_for(lambda: num_inflight(running) == 0, WITHIN_S)
    assert sum(metrics(running, "specdec_draft_failures").values()) > 0
