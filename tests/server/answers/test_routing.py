"""With several draft models, a task uses the one configured for it, unless that is useless."""

from specdec.steering.request_steering import CHOOSE_EVERY
from tests.server.support.doors import ROUTED, Door, num_drafts
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for


def test_tasks_use_their_configured_draft_model_unless_it_is_useless(doors):
    """The configured model drafts from the first request on; one with random weights is dropped.

    The text never changes.
    """
    door = Door(doors, ROUTED)
    plain = door.ask(COUNT, drafter="none").token_ids

    def ask(num_requests=1, **fields):
        """Ask for `num_requests` answers; return the rounds in which each model drafted."""
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
    assert ask(4, task="code")["random"] <= 2 * CHOOSE_EVERY

    # A request that names a drafter gets it, whatever its task.
    assert ask(task="sql", drafter="random")["random"] > 0


def test_acceptance_is_measured_by_tenant(doors):
    """A tenant with accepted drafts and one with rejected drafts have separate estimates."""
    door = Door(doors, ROUTED)
    door.ask(COUNT, task="count", tenant="acme", drafter="draft")
    door.ask(COUNT, task="count", tenant="globex", drafter="random")

    def alpha(label, drafter):
        return door.gauge("acceptance_alpha", task=label, drafter=drafter)

    wait_for(lambda: alpha("globex/count", "random") is not None)
    assert alpha("globex/count", "random") < 0.1
    assert alpha("acme/count", "draft") > 0.3
    assert alpha("acme/count", "random") is None
