"""The metrics page counts exactly the requests and tokens that clients saw."""

import collections
import time

import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError, collect
from tests.server.support.live import metrics, num_inflight
from tests.server.support.prompts import COUNT, SHIP
from tests.waiting import wait_for

MAX_TASKS = 32
DRAFTERS = (None, "lookup", "draft")
"""Names of drafters by their number in output_sources; 0 is the target."""
SETTLES_S = 10.0
"""Longest wait in seconds for the metrics page, which takes 50 ms on an idle machine."""


def labels(**pairs):
    """Return sorted labels as in the keys of `metrics`."""
    return tuple(sorted(f"{name}={value}" for name, value in pairs.items()))


def changes(server, before, families):
    """Return the changes since the page `before` in these families, without zeros."""
    return {
        key: value - before.get(key, 0.0)
        for key, value in metrics(server).items()
        if key[0] in families and value != before.get(key, 0.0)
    }


def settle(server, before, expected):
    """Wait until the page shows exactly the expected changes in their families.

    Raise AssertionError with the difference after SETTLES_S seconds.
    """
    families = {key[0] for key in expected}
    try:
        wait_for(lambda: changes(server, before, families) == dict(expected), SETTLES_S)
    except AssertionError:
        assert changes(server, before, families) == dict(expected)
        raise


def quiet_page(server):
    """Return the metrics page once no request is in flight and no value changes any more."""

    def unchanged():
        page = metrics(server)
        time.sleep(0.3)
        return page if page == metrics(server) and num_inflight(server) == 0 else None

    return wait_for(unchanged)


@pytest.fixture
def client(server):
    """Return a gRPC client of the server."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as opened:
        yield opened


def test_counters_equal_what_the_clients_saw(server, client):
    """Counters of requests, tokens, drafts, accepted tokens, steps and times match the answers.

    Labels are the task, the drafter and the position.
    """
    before, expected = quiet_page(server), collections.Counter()
    requests = [
        {"text_input": SHIP, "drafter": "lookup", "task": "copy"},
        {"text_input": COUNT, "drafter": "lookup", "task": "count", "num_draft_tokens": 2},
        {"text_input": COUNT, "drafter": "draft", "task": "count"},
        {"text_input": COUNT, "drafter": "none", "task": "count"},
    ]

    for request in requests:
        request |= {"max_tokens": 24, "return_perf_metrics": True}
        expect(expected, request["task"], list(client.stream(GenerationRequest(**request))))

    assert expected["specdec_num_accepted_tokens_total", labels(task="copy", drafter="lookup")] > 0
    settle(server, before, +expected)


def expect(expected, task, chunks):
    """Add the growth of the counters by one streamed answer, in which each chunk is a round."""
    answer = collect(chunks)
    parts = answer.end.speculative_decoding["drafters"]
    expected["specdec_requests_total", labels(outcome="ok")] += 1
    expected["specdec_prompt_tokens_total", ()] += answer.end.num_input_tokens
    expected["specdec_generation_tokens_total", labels(task=task)] += len(answer.token_ids)
    expected["specdec_target_step_seconds_count", ()] += len(chunks)
    for family in ("time_to_first_token", "inter_token_latency", "e2e_request_latency"):
        expected[f"specdec_{family}_seconds_count", ()] += 1
    for name, part in parts.items():
        both = labels(task=task, drafter=name)
        expected["specdec_draft_step_seconds_count", ()] += part["num_spec_steps"]
        expected["specdec_num_drafts_total", both] += part["num_spec_steps"]
        expected["specdec_num_draft_tokens_total", both] += part["num_draft_tokens"]
    for chunk in chunks:
        for position, source in enumerate(chunk.sources):
            if source:
                name = DRAFTERS[source]
                family = "specdec_num_accepted_tokens_per_pos_total"
                expected[family, labels(drafter=name, position=position)] += 1
                both = labels(task=task, drafter=name)
                expected["specdec_num_accepted_tokens_total", both] += 1


def test_tokens_after_a_stop_text_are_not_counted(server, client):
    """Counters have only the tokens that were sent, not those that a stop text cut off."""
    request = {"text_input": SHIP, "drafter": "lookup", "task": "cut", "max_tokens": 32}
    whole = client.generate(GenerationRequest(**request))
    stop = whole.text[len(whole.text) // 2 :][:7]
    before = quiet_page(server)

    answer = collect(client.stream(GenerationRequest(**request, stop_words=[stop])))

    num_drafted = sum(source > 0 for source in answer.sources)
    both = labels(task="cut", drafter="lookup")
    settle(
        server,
        before,
        +collections.Counter(
            {
                ("specdec_generation_tokens_total", labels(task="cut")): len(answer.token_ids),
                ("specdec_num_accepted_tokens_total", both): num_drafted,
            }
        ),
    )
    assert len(answer.token_ids) < len(whole.token_ids)


def test_outcomes_are_told_apart(server, client):
    """Refused, cancelled and overdue requests are counted with their own outcomes."""
    before, expected = quiet_page(server), collections.Counter()
    failing = {
        "invalid_request": {"max_tokens": 0},
        "deadline_exceeded": {"max_tokens": 3000, "deadline_ms": 200},
    }

    for outcome, fields in failing.items():
        with pytest.raises(SpecdecError):
            client.generate(GenerationRequest(text_input=COUNT, **fields))
        expected["specdec_requests_total", labels(outcome=outcome)] += 1
    leaving = client.stream(GenerationRequest(text_input=COUNT, max_tokens=3000))
    next(leaving)
    leaving.close()
    expected["specdec_requests_total", labels(outcome="cancelled")] += 1

    settle(server, before, expected)


def test_gauges_show_the_requests_in_flight_and_their_limit(server, client):
    """The gauge is 1 while a request runs and 0 afterwards; the limit is the configured one."""
    running = client.stream(GenerationRequest(text_input=COUNT, max_tokens=3000))
    next(running)
    wait_for(lambda: num_inflight(server) == 1, SETTLES_S)
    running.close()
    wait_for(lambda: num_inflight(server) == 0, SETTLES_S)

    page = metrics(server, dropped=("version",))
    assert page["specdec_inflight_limit", ("model=specdec",)] == 64


def test_task_labels_are_bounded(faulty_server):
    """The page has at most 32 task names of clients; further tasks are counted as `other`.

    A name may hold any characters.
    """
    family = "specdec_generation_tokens_total"
    tasks = [f"task {n}" for n in range(MAX_TASKS + 6)]
    strange = 'quote " backslash \\ newline \n ümlaut 🦀'

    with GrpcClient(faulty_server.grpc_url, timeout_s=120.0) as client:
        # A request without a task has a label as well, which the warm-up has used already.
        for task in [None, strange, *tasks]:
            client.generate(
                GenerationRequest(text_input="x", max_tokens=1, drafter="none", task=task)
            )
    wait_for(lambda: (family, ("task=other",)) in metrics(faulty_server), SETTLES_S)

    names = {key[1] for key in metrics(faulty_server) if key[0] == family}
    assert len(names) == MAX_TASKS + 1
    assert any("newline" in name for (name,) in names)
