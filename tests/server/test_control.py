"""The controller at a live server: what does not pay is left out, what was learned is kept."""

import json

import pytest

from clients import GenerationRequest, GrpcClient
from loadtest.bench.hopeless import random_draft
from specdec.serving.launcher import TritonServer
from tests.server.live import copy_repository, metrics, wait_for
from tests.server.prompts import COUNT, SHIP

pytestmark = pytest.mark.engines("torch")

SQL = "Write an SQL query that lists the customers who ordered nothing in the last year."


def gauge(server, name, **labels):
    """Return the value of a gauge, None while there is none."""
    wanted = {f"{key}={value}" for key, value in labels.items()}
    found = [
        value
        for (family, pairs), value in metrics(server).items()
        if family == f"specdec_{name}" and wanted <= set(pairs)
    ]
    return found[0] if found else None


def ask(server, prompt, **fields):
    """Return the answer's tokens and who proposed them."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        answer = client.generate(GenerationRequest(text_input=prompt, max_tokens=48, **fields))
    return answer.token_ids, answer.sources


@pytest.fixture(scope="module")
def hopeless(tmp_path_factory):
    """Return a server whose only draft has random weights, and the file that it remembers in."""
    directory = tmp_path_factory.mktemp("hopeless")
    memory = directory / "control.json"
    repository = copy_repository(
        directory / "repository",
        target_head_name="",
        control_share="0",
        control_state_file=str(memory),
    )
    weights = repository / "draft" / "1" / "checkpoint"
    source = weights.resolve()
    weights.unlink()
    random_draft(source, weights)
    with TritonServer(repository, log_path=directory / "server.log") as running:
        yield running, repository, memory


def test_hopeless_draft_is_left_out_and_stays_so_over_a_restart(hopeless):
    """It is tried, seen through, and not asked any more; the text is the target's throughout."""
    running, repository, memory = hopeless
    plain, _ = ask(running, COUNT, drafter="none")
    for _ in range(12):
        assert ask(running, COUNT, task="count")[0] == plain
    wait_for(lambda: gauge(running, "estimated_speedup", task="count"))

    # Its α̂ is about 0; a trial now and then is all that it still gets.
    before = gauge(running, "num_drafts_total", task="count", drafter="draft") or 0
    for _ in range(4):
        ask(running, COUNT, task="count")
    after = gauge(running, "num_drafts_total", task="count", drafter="draft") or 0
    assert after - before <= 2 * 16
    alpha = gauge(running, "acceptance_alpha", task="count", drafter="draft")
    assert alpha is None or alpha < 0.2
    running.stop()

    kept = json.loads(memory.read_text())
    assert any(key[:2] == ["count", "draft"] for key, _ in kept["tallies"])
    log = memory.parent / "again.log"
    with TritonServer(repository, log_path=log) as again:
        assert ask(again, COUNT, task="count")[0] == plain
    assert "measuring starts anew" not in log.read_text()
    assert json.loads(memory.read_text())["signature"] == kept["signature"]
    memory.write_text(memory.read_text().replace(kept["signature"], "another pair"))
    with TritonServer(repository, log_path=log) as stranger:
        assert ask(stranger, COUNT, task="count")[0] == plain
    assert "measuring starts anew" in log.read_text()


def test_requests_without_a_task_are_told_apart(server):
    """By their text; a task that is named is kept."""
    ask(server, SQL)
    ask(server, SQL, task="mine")

    for task in ("auto:sql", "mine"):
        wait_for(lambda task=task: gauge(server, "generation_tokens_total", task=task))


def test_schedule_says_off_and_a_request_says_otherwise(tmp_path):
    """Off for all who do not ask; on for who does."""
    repository = copy_repository(
        tmp_path / "repository", speculation="schedule", speculation_schedule="else:0"
    )
    with TritonServer(repository, log_path=tmp_path / "server.log") as running:
        plain, sources = ask(running, SHIP)
        drafted, proposed = ask(running, SHIP, drafter="lookup")
    assert plain == drafted
    assert not any(sources)
    assert any(proposed)
