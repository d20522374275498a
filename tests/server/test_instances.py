"""Several orchestrators over the same engines: one service, counted once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from clients import GenerationRequest, GrpcClient
from loadtest.bench.repository import with_drafts
from specdec.serving.launcher import TritonServer
from tests.server.live import MODEL_REPOSITORY, metrics, wait_for
from tests.server.prompts import COUNT, SHIP

pytestmark = pytest.mark.engines("torch")  # the same

DRAFTERS = ("none", "auto", "lookup", "draft")
NUM_INSTANCES = 2


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    """Return a server with two instances of `specdec`."""
    directory = tmp_path_factory.mktemp("instances")
    repository = with_drafts(MODEL_REPOSITORY, directory / "repository", [])
    config = repository / "specdec" / "config.pbtxt"
    text = config.read_text("utf-8")
    assert text.count("count: 1") == 1
    config.write_text(text.replace("count: 1", f"count: {NUM_INSTANCES}"), "utf-8")
    with TritonServer(repository, log_path=directory / "server.log") as running:
        yield running


def value(server, name):
    """Return the sum over a family's series."""
    return sum(number for key, number in metrics(server).items() if key[0] == name)


def test_instances_are_one_service(server, instances):
    """Answers are the target's, and the page adds up what the instances do."""
    requests = [
        GenerationRequest(text_input=text, max_tokens=24, drafter=drafter)
        for text in (COUNT, SHIP)
        for drafter in DRAFTERS
    ]
    with GrpcClient(server.grpc_url) as client:
        expected = [client.generate(request).token_ids for request in requests]
    with GrpcClient(instances.grpc_url) as client, ThreadPoolExecutor(8) as threads:
        answers = [*threads.map(client.generate, requests * 2)]

    assert [answer.token_ids for answer in answers] == expected * 2
    num_tokens = sum(len(answer.token_ids) for answer in answers)
    wait_for(lambda: value(instances, "specdec_generation_tokens_total") == num_tokens, 10.0)
    assert value(instances, "specdec_requests_total") == len(answers)
    wait_for(lambda: value(instances, "specdec_inflight_requests") == 0, 10.0)
    assert value(instances, "specdec_inflight_limit") == NUM_INSTANCES * 64
