"""Drafting ahead while the target verifies changes no token."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from tests.server.support.doors import AHEAD, Door
from tests.server.support.live import is_idle
from tests.server.support.prompts import CHATS, COUNT, PLAIN
from tests.waiting import wait_for

PROMPTS = [{"text_input": text} for text in PLAIN] + [{"messages": chat} for chat in CHATS]


@pytest.fixture(scope="module")
def client(doors):
    """Return a client of the orchestrator `ahead`, whose draft model drafts ahead."""
    with GrpcClient(doors.grpc_url, model_name=AHEAD, timeout_s=240.0) as opened:
        yield opened


def expect_no_change(client, drafters, **draw):
    """Check that each prompt gets the same tokens with and without drafts, four at a time."""
    fields = [{**prompt, **draw, "max_tokens": 16} for prompt in PROMPTS]
    ways = [
        {"drafter": drafters[number % 2], "num_draft_tokens": (1, 2, 6)[number % 3]}
        for number in range(len(PROMPTS))
    ]
    plain = [GenerationRequest(**each, num_draft_tokens=0) for each in fields]
    drafted = [
        GenerationRequest(**each, **way, return_perf_metrics=True)
        for each, way in zip(fields, ways, strict=True)
    ]
    with ThreadPoolExecutor(4) as pool:
        expected = list(pool.map(client.generate, plain))
        answers = list(pool.map(client.generate, drafted))

    assert [each.token_ids for each in answers] == [each.token_ids for each in expected]
    assert sum(each.end.total_accepted_draft_tokens for each in answers) > 0


def test_drafting_ahead_keeps_the_text_and_leaves_no_work(doors, client):
    """Answers are the target's own, and no draft call fails.

    No engine works after the last answer, nor after a deadline that ended a request.
    """
    expect_no_change(client, ("draft", "auto"))
    with pytest.raises(SpecdecError, match="deadline_exceeded"):
        client.generate(
            GenerationRequest(text_input=COUNT, max_tokens=4000, drafter="draft", deadline_ms=700)
        )

    wait_for(lambda: is_idle(doors))
    assert not Door(doors, AHEAD).gauge("draft_failures_total")


def test_drafting_ahead_keeps_sampled_text(doors, client):
    """At temperature 1 the answers of a seed are the target's own, and no draft call fails."""
    expect_no_change(client, ("auto", "draft"), temperature=1.0, seed=7)
    assert not Door(doors, AHEAD).gauge("draft_failures_total")
