"""The controller at a live server: what does not pay is left out, what was learned is kept."""

import json

import pytest

from specdec.control.steering import TRIAL_ROUNDS
from tests.server.doors import HOPELESS, SCHEDULED, Door, memory_of, num_drafts
from tests.server.live import (
    load,
    unload,
)
from tests.server.prompts import COUNT, SHIP
from tests.waiting import wait_for

SQL = "Write an SQL query that lists the customers who ordered nothing in the last year."


def restarted(server):
    """Start the hopeless front door anew; return what it says in the log meanwhile."""
    num_said = len(server.log_path.read_text())
    load(server, HOPELESS)
    return server.log_path.read_text()[num_said:]


def test_hopeless_draft_is_left_out_and_stays_so_over_a_restart(doors):
    """It is tried, seen through, and not asked any more; the text is the target's throughout."""
    door = Door(doors, HOPELESS)
    plain = door.ask(COUNT, drafter="none").token_ids

    def num_asked(num_requests):
        """Return in how many rounds the draft was asked for so many answers."""
        answers = [door.ask(COUNT, task="count") for _ in range(num_requests)]
        assert {each.token_ids for each in answers} == {plain}
        return sum(num_drafts(each, "random") for each in answers)

    assert num_asked(8) > 0
    # Its α̂ is about 0; a trial now and then is all that it still gets.
    assert num_asked(4) <= 2 * TRIAL_ROUNDS
    wait_for(lambda: door.gauge("estimated_speedup", task="count"))
    assert door.gauge("acceptance_alpha", task="count", drafter="random") < 0.2

    unload(doors, HOPELESS)
    kept = json.loads(memory_of(doors).read_text())
    assert any(key[:2] == ["count", "random"] for key, _ in kept["tallies"])
    assert "measuring starts anew" not in restarted(doors)
    assert num_asked(1) == 0


def test_who_asks_for_the_target_alone_teaches_its_pace(doors):
    """It is what all else is compared with: no trial needs to be spent on it."""
    unload(doors, HOPELESS)
    memory_of(doors).unlink(missing_ok=True)
    load(doors, HOPELESS)
    answer = Door(doors, HOPELESS).ask(COUNT, num_draft_tokens=0)

    unload(doors, HOPELESS)
    [(load_bucket, step_s, num_steps, *_)] = json.loads(memory_of(doors).read_text())["baselines"]
    load(doors, HOPELESS)
    assert load_bucket == 0
    assert step_s > 0
    assert 0 < num_steps < len(answer.token_ids)


@pytest.mark.engines("torch")  # a file, whatever answers
def test_memory_of_another_pair_is_worth_nothing(doors):
    """It is said in the log, and what was learned is forgotten: the draft is asked again."""
    Door(doors, HOPELESS).ask(COUNT, task="count")
    unload(doors, HOPELESS)
    text = memory_of(doors).read_text()
    memory_of(doors).write_text(text.replace(json.loads(text)["signature"], "another pair"))

    assert "measuring starts anew" in restarted(doors)
    assert num_drafts(Door(doors, HOPELESS).ask(COUNT, task="count"), "random") > 0


@pytest.mark.engines("torch")
def test_draft_of_other_weights_is_tried_anew(doors):
    """What was learned of the one that it took the place of, while nobody served, is no matter."""
    door = Door(doors, HOPELESS)
    for _ in range(8):
        door.ask(COUNT, task="count")
    unload(doors, HOPELESS)
    draft = doors.settings.model_repository / "random" / "1" / "checkpoint"
    (draft / "retrained.json").write_text("{}")

    assert "other weights of random" in restarted(doors)
    door = Door(doors, HOPELESS)
    # At once where it promises to pay, else in one of three trials.
    assert any(num_drafts(door.ask(COUNT, task="count"), "random") for _ in range(8))


def test_requests_without_a_task_are_told_apart(server):
    """By their text; a task that is named is kept."""
    door = Door(server)
    door.ask(SQL)
    door.ask(SQL, task="mine")

    for task in ("auto:sql", "mine"):
        wait_for(lambda task=task: door.gauge("generation_tokens_total", task=task))


def test_schedule_says_off_and_a_request_says_otherwise(doors):
    """Off for all who do not ask; on for who does."""
    door = Door(doors, SCHEDULED)

    plain, drafted = door.ask(SHIP), door.ask(SHIP, drafter="lookup")

    assert plain.token_ids == drafted.token_ids
    assert not any(plain.sources)
    assert any(drafted.sources)
