"""Drafting ahead of the target changes when tokens come, and nothing else."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from clients import GenerationRequest, GrpcClient, SpecdecError
from specdec.serving.launcher import TritonServer
from tests.server.live import copy_repository, is_idle, metrics, wait_for
from tests.server.prompts import CHATS, COUNT, PLAIN

pytestmark = pytest.mark.engines("torch")  # the loop around the calls, whatever answers them

DRAWS = ({"temperature": 0.0}, {"temperature": 1.0, "seed": 7})
PROMPTS = [{"text_input": text} for text in PLAIN] + [{"messages": chat} for chat in CHATS]


@pytest.fixture(scope="module")
def ahead_server(tmp_path_factory):
    """Return a server whose draft engine works ahead, on the same cores as the target."""
    directory = tmp_path_factory.mktemp("ahead")
    repository = copy_repository(directory, draft_ahead="true")
    with TritonServer(repository, log_path=directory / "server.log") as running:
        yield running


def test_text_is_the_same_with_and_without(server, ahead_server):
    """Greedy and drawn, each drafter, four at a time: the answers of a server that never does it.

    And no engine works on when all are answered, nor when a deadline ended a request in between.
    """
    jobs = [
        (prompt | draw | {"max_tokens": 24}, {"drafter": drafter, "num_draft_tokens": k})
        for number, prompt in enumerate(PROMPTS)
        for turn, draw in enumerate(DRAWS)
        for drafter, k in [(("draft", "auto")[(number + turn) % 2], (1, 2, 6)[number % 3])]
    ]
    with (
        GrpcClient(server.grpc_url, timeout_s=240.0) as without,
        GrpcClient(ahead_server.grpc_url, timeout_s=240.0) as ahead,
        ThreadPoolExecutor(4) as pool,
    ):
        expected = [
            without.generate(GenerationRequest(**job, num_draft_tokens=0)) for job, _ in jobs
        ]
        requests = [GenerationRequest(**job, **way, return_perf_metrics=True) for job, way in jobs]
        answers = list(pool.map(ahead.generate, requests))
        with pytest.raises(SpecdecError, match="deadline_exceeded"):
            ahead.generate(
                GenerationRequest(
                    text_input=COUNT, max_tokens=4000, drafter="draft", deadline_ms=700
                )
            )

    assert [each.token_ids for each in answers] == [each.token_ids for each in expected]
    assert sum(each.final.total_accepted_draft_tokens for each in answers) > 0
    wait_for(lambda: is_idle(ahead_server))
    failures = metrics(ahead_server, "specdec_draft_failures_total")
    assert not any(failures.values())
