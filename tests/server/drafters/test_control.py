"""The controller of a live server drops draft models that do not pay, and keeps what it learned."""

import json

import pytest

from specdec.steering.request_steering import CHOOSE_EVERY
from tests.server.support.doors import HOPELESS, SCHEDULED, Door, memory_of, num_drafts
from tests.server.support.live import load, unload
from tests.server.support.prompts import COUNT, SHIP
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_crash")  # tests here unload models

SQL = "Write an SQL query that lists the customers who ordered nothing in the last year."


def restarted(server):
    """Load the orchestrator `hopeless` again; return the log lines that were added meanwhile."""
    num_logged = len(server.log_path.read_text())
    load(server, HOPELESS)
    return server.log_path.read_text()[num_logged:]


def test_requests_without_speculation_give_the_time_of_plain_steps(doors):
    """The controller learns its baseline from such a request, without a trial."""
    answer = Door(doors, HOPELESS).ask(COUNT, num_draft_tokens=0)

    unload(doors, HOPELESS)
    [(key, num_steps, products, _)] = json.loads(memory_of(doors).read_text())["costs"]["steps"]
    load(doors, HOPELESS)
    assert key == ["none", 0, 0]
    assert products[0][1] > 0  # mean seconds of a step
    assert 0 < num_steps < len(answer.token_ids)


def test_hopeless_draft_is_dropped_and_stays_so_after_a_restart(doors):
    """A draft model with random weights is tried, then hardly asked, and not after a restart.

    The text is the target's own all the time.
    """
    door = Door(doors, HOPELESS)
    plain = door.ask(COUNT, drafter="none").token_ids

    def num_asked(num_requests):
        """Ask for `num_requests` answers; return the rounds in which the model `random` drafted."""
        answers = [door.ask(COUNT, task="count") for _ in range(num_requests)]
        assert {each.token_ids for each in answers} == {plain}
        return sum(num_drafts(each, "random") for each in answers)

    assert num_asked(8) > 0
    # Its α̂ is about 0, so it gets only a trial now and then.
    assert num_asked(4) <= 2 * CHOOSE_EVERY
    wait_for(lambda: door.gauge("estimated_speedup", task="count"))
    assert door.gauge("acceptance_alpha", task="count", drafter="random") < 0.2

    unload(doors, HOPELESS)
    kept = json.loads(memory_of(doors).read_text())
    assert any(key[:2] == ["count", "random"] for key, *_ in kept["acceptance"])
    assert "acceptance and times are taken from" in restarted(doors)
    assert num_asked(1) == 0


def test_draft_model_with_new_weights_is_tried_again(doors):
    """If its weights change while it is not served, estimates of the old ones do not count."""
    door = Door(doors, HOPELESS)
    for _ in range(4):
        door.ask(COUNT, task="count")
    unload(doors, HOPELESS)
    draft = doors.settings.model_repository / "random" / "1" / "checkpoint"
    (draft / "retrained.json").write_text("{}")

    assert "other weights of random" in restarted(doors)
    door = Door(doors, HOPELESS)
    # It drafts at once if it promises to pay, else in one of three trials.
    assert any(num_drafts(door.ask(COUNT, task="count"), "random") for _ in range(8))


def test_task_of_a_request_is_named_by_the_client_or_told_from_its_text(server):
    """An SQL question without a task counts as `auto:sql`; with a task it keeps that."""
    door = Door(server)
    door.ask(SQL)
    door.ask(SQL, task="mine")

    for task in ("auto:sql", "mine"):
        wait_for(lambda task=task: door.gauge("generation_tokens_total", task=task))


def test_request_can_ask_for_a_drafter_although_the_schedule_says_off(doors):
    """A request runs without speculation, as scheduled, but one that names a drafter gets it."""
    door = Door(doors, SCHEDULED)

    plain, drafted = door.ask(SHIP), door.ask(SHIP, drafter="lookup")

    assert plain.token_ids == drafted.token_ids
    assert not any(plain.sources)
    assert any(drafted.sources)
