"""Drafting ahead of the target changes when tokens come, and nothing else."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from clients import GenerationRequest, GrpcClient, SpecdecError
from tests.server.doors import AHEAD, Door
from tests.server.live import (
    is_idle,
)
from tests.server.prompts import CHATS, COUNT, PLAIN
from tests.waiting import wait_for

PROMPTS = [{"text_input": text} for text in PLAIN] + [{"messages": chat} for chat in CHATS]


@pytest.fixture(scope="module")
def client(doors):
    """Return a client of a front door whose draft engine works ahead, on the target's cores."""
    with GrpcClient(doors.grpc_url, model_name=AHEAD, timeout_s=240.0) as opened:
        yield opened


def expect_no_change(client, drafters, **draw):
    """Ask for each prompt with and without drafts, four at a time, and compare."""
    fields = [{**prompt, **draw, "max_tokens": 24} for prompt in PROMPTS]
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
    assert sum(each.final.total_accepted_draft_tokens for each in answers) > 0


def test_text_is_the_same_with_and_without(doors, client):
    """Each drafter, four at a time: the target's own answers.

    And no engine works on when all are answered, nor when a deadline ended a request in between.
    """
    expect_no_change(client, ("draft", "auto"))
    with pytest.raises(SpecdecError, match="deadline_exceeded"):
        client.generate(
            GenerationRequest(text_input=COUNT, max_tokens=4000, drafter="draft", deadline_ms=700)
        )

    wait_for(lambda: is_idle(doors))
    assert not Door(doors, AHEAD).gauge("draft_failures_total")


@pytest.mark.engines("torch")  # compiled engines judge drawn drafts, and those are not made ahead
def test_drawn_text_is_the_same_with_and_without(doors, client):
    """The same at a temperature."""
    expect_no_change(client, ("auto", "draft"), temperature=1.0, seed=7)
    assert not Door(doors, AHEAD).gauge("draft_failures_total")
