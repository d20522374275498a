"""Several drafts at a live server: tasks go where they are sent, unless it turns out hopeless."""

from specdec.control.steering import TRIAL_ROUNDS
from tests.server.doors import ROUTED, Door, num_drafts
from tests.server.prompts import COUNT
from tests.waiting import wait_for


def test_tasks_go_where_they_are_sent_until_that_is_hopeless(doors):
    """From the first request on; then away from the random draft, and the text never changes."""
    door = Door(doors, ROUTED)
    plain = door.ask(COUNT, drafter="none").token_ids

    def ask(num_requests=1, **fields):
        """Return the rounds in which each draft was asked for so many answers."""
        answers = [door.ask(COUNT, **fields) for _ in range(num_requests)]
        assert {each.token_ids for each in answers} == {plain}
        return {
            name: sum(num_drafts(each, name) for each in answers) for name in ("draft", "random")
        }

    for task, own, other in (("sql", "draft", "random"), ("code", "random", "draft")):
        asked = ask(task=task)
        assert asked[own] > 0
        assert asked[other] == 0

    ask(8, task="code")
    assert ask(4, task="code")["random"] <= 2 * TRIAL_ROUNDS

    # A request's own drafter wins.
    assert ask(task="sql", drafter="random")["random"] > 0


def test_acceptance_is_measured_by_tenant(doors):
    """One tenant's guesses stand, the other's fall: each has a figure of its own."""
    door = Door(doors, ROUTED)
    door.ask(COUNT, task="count", tenant="acme", drafter="draft")
    door.ask(COUNT, task="count", tenant="globex", drafter="random")

    def alpha(label, drafter):
        return door.gauge("acceptance_alpha", task=label, drafter=drafter)

    wait_for(lambda: alpha("globex/count", "random") is not None)
    assert alpha("globex/count", "random") < 0.1
    assert alpha("acme/count", "draft") > 0.3
    assert alpha("acme/count", "random") is None
