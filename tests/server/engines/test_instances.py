"""Several instances of an orchestrator are one service, whose metrics count each request once."""

from concurrent.futures import ThreadPoolExecutor

from tests.server.support.doors import AHEAD, NUM_INSTANCES, Door
from tests.server.support.prompts import COUNT, SHIP
from tests.waiting import wait_for

DRAFTERS = ("none", "auto", "lookup", "draft")


def test_instances_are_one_service(doors):
    """Answers are the target's own, and the metrics page shows the sums over all instances."""
    door, alone = Door(doors, AHEAD), Door(doors)
    expected = {
        text: alone.ask(text, max_tokens=16, drafter="none").token_ids for text in (COUNT, SHIP)
    }
    requests = 2 * [(text, drafter) for text in expected for drafter in DRAFTERS]
    before = door.gauge("requests_total", outcome="ok") or 0

    def ask(request):
        text, drafter = request
        return door.ask(text, max_tokens=16, drafter=drafter, task="together")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, requests))

    assert [each.token_ids for each in answers] == [expected[text] for text, _ in requests]
    num_tokens = sum(len(each.token_ids) for each in answers)
    wait_for(lambda: door.gauge("generation_tokens_total", task="together") == num_tokens, 10.0)
    assert door.gauge("requests_total", outcome="ok") == before + len(answers)
    wait_for(lambda: door.gauge("inflight_requests") == 0, 10.0)
    assert door.gauge("inflight_limit") == NUM_INSTANCES * 64
