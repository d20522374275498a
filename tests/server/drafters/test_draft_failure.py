"""A draft model that raises, hangs or is missing changes no answer and costs little time."""

import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError, collect
from tests.server.support.faulty import FAILING_DRAFTS
from tests.server.support.live import metrics, num_inflight
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

MAX_TOKENS = 16
PROMPT = "The sea was calm when the captain"
"""Text without repetition, so that lookup has no proposal and the draft model is asked."""


@pytest.fixture(scope="module")
def client(faulty_server):
    """Return a gRPC client of the faulty server."""
    with GrpcClient(faulty_server.grpc_url, timeout_s=120.0) as opened:
        yield opened


@pytest.fixture(scope="module")
def expected(client):
    """Return the target's tokens without speculation."""
    return ask(client, "none").token_ids


def ask(client, drafter, **options):
    """Return the collected answer of a streamed request, with statistics."""
    fields = {"max_tokens": MAX_TOKENS, "return_perf_metrics": True} | options
    request = GenerationRequest(text_input=PROMPT, drafter=drafter, **fields)
    return collect(client.stream(request))


def num_failures(server, drafter, reason):
    """Return the number of failures of a draft model with this reason so far."""
    labels = (f"drafter={drafter}", f"reason={reason}")
    return metrics(server).get(("specdec_draft_failures_total", labels), 0.0)


@pytest.mark.parametrize(("drafter", "reason"), FAILING_DRAFTS.items())
def test_request_goes_on_without_its_draft(faulty_server, client, expected, drafter, reason):
    """The answer is the target's own, and the failure is counted with its reason."""
    answer = ask(client, drafter)

    assert answer.token_ids == expected
    assert answer.end.total_draft_tokens == 0
    wait_for(lambda: num_failures(faulty_server, drafter, reason) >= 1)
    assert num_failures(faulty_server, drafter, reason) <= MAX_TOKENS


def test_auto_goes_on_without_its_draft(client, expected):
    """With `auto` the answer is the target's own, although three of four draft models fail."""
    assert ask(client, "auto").token_ids == expected


def test_other_draft_models_keep_drafting(client, expected):
    """Failing draft models do not switch off one that works."""
    answer = ask(client, "draft")

    assert answer.token_ids == expected
    assert answer.end.total_draft_tokens > 0


def test_request_with_a_hanging_draft_can_be_ended(faulty_server, client):
    """A deadline or a hang-up ends the request without waiting for the hanging engine."""
    with pytest.raises(SpecdecError) as caught:
        collect(
            client.stream(
                GenerationRequest(
                    text_input=COUNT, max_tokens=4000, drafter="hanging", deadline_ms=1500
                )
            )
        )
    assert caught.value.error_type == "deadline_exceeded"
    leaving = client.stream(GenerationRequest(text_input=COUNT, max_tokens=4000, drafter="hanging"))
    next(leaving)
    leaving.close()

    wait_for(lambda: num_inflight(faulty_server) == 0)
    assert ask(client, "none").token_ids


@pytest.mark.parametrize("drafter", ["none", "lookup"])
def test_missing_target_is_an_error_of_the_engine(faulty_server, drafter):
    """The client gets `engine_failed`, UNAVAILABLE, with the name of the missing model."""
    request = GenerationRequest(text_input="x", max_tokens=2, drafter=drafter)
    with (
        GrpcClient(faulty_server.grpc_url, model_name="orphan", timeout_s=60.0) as client,
        pytest.raises(SpecdecError, match="nowhere") as caught,
    ):
        client.generate(request)

    assert caught.value.error_type == "engine_failed"
    assert caught.value.status == "UNAVAILABLE"
