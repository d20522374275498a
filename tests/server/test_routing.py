"""Several drafts at a live server: tasks go where they are sent, unless it turns out hopeless."""

import pytest

from builder.add_draft import add_draft
from builder.parameters import set_parameters
from loadtest.bench.hopeless import random_draft
from specdec.control.steering import TRIAL_ROUNDS
from specdec.serving.launcher import TritonServer
from tests.server.live import MODEL_REPOSITORY, copy_repository, wait_for
from tests.server.prompts import COUNT
from tests.server.test_control import ask, gauge

pytestmark = pytest.mark.engines("torch")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Return a server with the pair's draft, which SQL goes to, and a random one for code."""
    directory = tmp_path_factory.mktemp("routed")
    repository = copy_repository(
        directory, target_head_name="", control_share="0", acceptance_by_tenant="true"
    )
    weights = random_draft(MODEL_REPOSITORY / "draft" / "1" / "checkpoint", directory / "random")
    add_draft(repository, "random", weights)
    set_parameters(repository / "specdec", task_drafters="sql=draft,code=random")
    with TritonServer(repository, log_path=directory / "server.log") as server:
        yield server


def drafts(server, task, drafter):
    """Return the rounds in which the drafter had a draft."""
    return gauge(server, "num_drafts_total", task=task, drafter=drafter) or 0


def test_tasks_go_where_they_are_sent_until_that_is_hopeless(running):
    """From the first request on; then away from the random draft, and the text never changes."""
    plain, _ = ask(running, COUNT, drafter="none")
    for task, own, other in (("sql", "draft", "random"), ("code", "random", "draft")):
        assert ask(running, COUNT, task=task)[0] == plain
        wait_for(lambda task=task, own=own: drafts(running, task, own) > 0)
        assert drafts(running, task, other) == 0

    for _ in range(12):
        assert ask(running, COUNT, task="code")[0] == plain
    before = drafts(running, "code", "random")
    for _ in range(4):
        ask(running, COUNT, task="code")
    assert drafts(running, "code", "random") - before <= 2 * TRIAL_ROUNDS

    # A request's own drafter wins.
    before = drafts(running, "sql", "random")
    assert ask(running, COUNT, task="sql", drafter="random")[0] == plain
    assert drafts(running, "sql", "random") > before


def test_acceptance_is_measured_by_tenant(running):
    """One tenant's guesses stand, the other's fall: each has a figure of its own."""
    ask(running, COUNT, task="count", tenant="acme", drafter="draft")
    ask(running, COUNT, task="count", tenant="globex", drafter="random")

    def alpha(label, drafter):
        return gauge(running, "acceptance_alpha", task=label, drafter=drafter)

    wait_for(lambda: alpha("globex/count", "random") is not None)
    assert alpha("globex/count", "random") < 0.1
    assert alpha("acme/count", "draft") > 0.3
    assert alpha("acme/count", "random") is None
