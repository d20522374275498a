"""Tests of the hooks in vLLM's worker, with a double of vLLM's engine core."""

import itertools
import json

import pytest

from specdec.batch_engines.attempts import MAX_FAILURES
from specdec.batch_engines.draft_models import DraftRelay
from specdec.batch_engines.reports import ReportReader
from specdec.batch_engines.vllm import worker
from specdec.errors import ConfigurationError
from tests.unit.batch_engines.vllm.fake_vllm import EngineCore, ModelRunner

PROMPT = list(range(100, 140))
MAX_DRAFT_LEN = 8
PARAMETERS = {
    "checkpoint_dir": "checkpoint",
    "tensorrt_llm_draft_model_name": "",
    "max_draft_len": str(MAX_DRAFT_LEN),
    "draft_budget_ms": "1000",
    "control_share": "0",
}
HEAD = {
    "vllm_drafter": "eagle3",
    "target_head_name": "eagle3",
    "head_tree_num_draft_tokens": "0",
}


class Server:
    """An engine core with our drafters bound to it, and the reader of its reports."""

    def __init__(self, core, directory, ask=None, **parameters):
        self.core = core
        self.reports = ReportReader()
        self.worker = worker.SpecdecWorker()
        self.worker.model_runner = core.runner
        given = {name: {"string_value": value} for name, value in parameters.items()}
        self.config = json.dumps({"name": "target", "parameters": given})
        self.directory = directory
        self.relay = None if ask is None else DraftRelay(ask)
        self.bound = ""

    def bind(self):
        relay = self.relay.address if self.relay else ""
        self.bound = self.worker.specdec_bind(
            self.config, str(self.directory), self.reports.address, relay
        )

    def rounds(self):
        """Return the rounds of each request that were reported."""
        found = {}
        for report in self.reports.read():
            assert report.num_lost == 0
            for name, record in report.records.items():
                found.setdefault(name, []).append(record)
        return found

    def close(self):
        if self.bound:
            self.worker.specdec_close()
        self.reports.close()
        if self.relay is not None:
            self.relay.close()


@pytest.fixture
def serve(monkeypatch, tmp_path):
    """Return a function that binds our drafters to an engine core."""
    monkeypatch.setattr(worker, "end_with_parent", lambda: None)
    monkeypatch.setattr(worker, "_returns_tokens", lambda: True)
    monkeypatch.setattr(worker, "_is_only_worker", lambda: True)
    servers = []

    def make(core=None, **parameters):
        core = core or EngineCore(MAX_DRAFT_LEN, worker.SpecdecProposer(None))
        servers.append(Server(core, tmp_path, **PARAMETERS | parameters))
        servers[-1].bind()
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def head_core():
    """Return an engine core whose own drafter always proposes the next tokens of PROMPT."""
    return EngineCore(
        MAX_DRAFT_LEN, None, lambda context: PROMPT[(context[-1] - 99) % 40 :][:MAX_DRAFT_LEN]
    )


def test_answers_are_those_without_drafts(serve):
    """With any drafter, the target confirms only its own tokens."""
    server = serve()
    text = [*PROMPT[3:30], 7, 8, *PROMPT[:10]]
    for name, drafter in (("a", "lookup"), ("b", "none"), ("c", "suffix"), ("d", "auto")):
        server.core.add(name, PROMPT, text, options={"drafter": drafter})
    server.core.run()
    assert all(each.generated == text for each in server.core.ended.values())
    assert max(server.core.ended["a"].verified) > 0
    assert not any(server.core.ended["b"].verified)


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_each_request_gets_the_draft_length_that_it_asks_for(serve, k):
    """Requests of one batch may ask for different lengths, 0 included."""
    server = serve()
    for name, asked in (("a", k), ("b", 8 - k)):
        options = {"drafter": "lookup", "num_draft_tokens": asked}
        server.core.add(name, PROMPT, PROMPT[1:38], options=options)
    server.core.run()
    assert max(server.core.ended["a"].verified) == k
    assert max(server.core.ended["b"].verified) == 8 - k


def test_draft_model_is_asked_by_way_of_the_models_process(serve):
    """Its drafts are verified as others are."""

    def ask(model, contexts, salts, num_tokens):
        assert (model, salts) == ("small", ["red"])
        return [tuple(PROMPT[(each[-1] - 99) % 40 :][:num_tokens]) for each in contexts]

    server = serve(ask=ask, tensorrt_llm_draft_model_name="small")
    options = {"drafter": "small", "num_draft_tokens": 4, "tenant": "red"}
    server.core.add("a", PROMPT, PROMPT[1:30], options=options)
    server.core.run()
    drafted = [each for each in server.rounds()["our-a"] if each.num_draft_tokens]
    assert {each.drafter for each in drafted} == {"small"}
    assert sum(len(each.accepted_sources) for each in drafted) > 15


def test_reported_rounds_add_up_to_the_answer(serve):
    """The rounds tell which drafter proposed each token, and how many tokens were verified."""
    server, text = serve(), PROMPT[1:30]
    server.core.add("a", PROMPT, [*text, 0, 1, 2], end_id=0, options={"drafter": "lookup"})
    server.core.run()
    rounds = server.rounds()["our-a"]
    assert sum(each.num_tokens for each in rounds) == len(text)
    verified = [each.num_draft_tokens for each in rounds]
    assert verified == server.core.ended["a"].verified
    drafted = [each for each in rounds if each.num_draft_tokens]
    assert drafted
    assert {each.drafter for each in drafted} == {"lookup"}
    assert all(len(each.accepted_sources) <= each.num_draft_tokens for each in rounds)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_vllms_own_drafter_proposes_only_what_is_asked(serve, k):
    """A longer draft would cost passes of the drafter for nothing."""
    server = serve(head_core(), **HEAD)
    options = {"drafter": "eagle3", "num_draft_tokens": k}
    server.core.add("a", PROMPT, PROMPT[1:30], options=options)
    server.core.run()
    assert server.core.ended["a"].verified[1:-1] == [k] * (len(server.core.ended["a"].verified) - 2)
    assert max(server.core.runner.num_own_drafted[1:]) == k
    assert {each.drafter for each in server.rounds()["our-a"][1:-1]} == {"eagle3"}


@pytest.mark.parametrize("drafter", ["none", "lookup", "suffix"])
def test_vllms_own_drafter_is_left_out_if_no_request_wants_it(serve, drafter):
    """It does not even read the prompt."""
    server = serve(head_core(), **HEAD)
    server.core.add("a", PROMPT, PROMPT[1:30], options={"drafter": drafter})
    server.core.run()
    assert server.core.runner.num_own_drafted == []


@pytest.mark.parametrize(("num_requests", "is_read"), [(1, True), (2, False), (9, False)])
def test_vllms_own_drafter_reads_prompts_only_if_it_is_chosen(serve, num_requests, is_read):
    """The choice comes before the prompt is read, and requests that begin together all count."""
    rules = {"speculation": "schedule", "speculation_schedule": "load<=1:3, else:0"}
    server = serve(head_core(), **HEAD, **rules)
    for number in range(num_requests):
        server.core.add(f"r{number}", PROMPT, PROMPT[1:30])
    server.core.run()
    assert bool(server.core.runner.num_own_drafted) == is_read
    assert any(server.core.ended["r0"].verified) == is_read


def test_copy_that_goes_beyond_the_heads_draft_is_taken(serve):
    """It has more tokens than the head's."""
    server = serve(head_core(), **HEAD)
    options = {"drafter": "lookup+eagle3", "num_draft_tokens": None}
    server.core.add("a", PROMPT, PROMPT[1:38], options=options)
    server.core.run()
    assert {each.drafter for each in server.rounds()["our-a"]} >= {"lookup"}


def test_preempted_request_goes_on_where_it_was(serve):
    """vLLM reads it again from the prompt, without new tokens."""
    server = serve()
    server.core.add("a", PROMPT, PROMPT[1:38], options={"drafter": "lookup"})
    for _ in range(3):
        server.core.step()
    server.core.preempt("a")
    server.core.run()
    assert server.core.ended["a"].generated == PROMPT[1:38]
    assert sum(each.num_tokens for each in server.rounds()["our-a"]) == 37


def test_aborted_requests_leave_nothing(serve):
    """Neither the hooks nor the drafters keep their texts."""
    server = serve()
    for number in range(30):
        server.core.add(f"r{number}", PROMPT, PROMPT[1:38], options={"drafter": "auto"})
    server.core.step()
    for number in range(0, 30, 3):
        server.core.abort(f"r{number}")
    server.core.run()
    drafting = server.worker._specdec_drafting
    assert drafting._running == {}
    assert drafting._batch._requests == {}


@pytest.mark.parametrize(("period", "is_on"), [(5, True), (1, False)])
def test_drafting_that_raises_fails_no_step(serve, monkeypatch, period, is_on):
    """The step goes on without draft tokens; after three failures in a row no step asks for any."""
    server = serve(head_core(), **HEAD)
    drafting = server.worker._specdec_drafting
    calls, real = itertools.count(1), drafting._batch.step

    def step(steps):
        if not next(calls) % period:
            raise RuntimeError("broken")
        return real(steps)

    monkeypatch.setattr(drafting._batch, "step", step)
    server.core.add("a", PROMPT, PROMPT[1:38], options={"drafter": "none"})
    server.core.run()
    assert server.core.ended["a"].generated == PROMPT[1:38]
    assert not any(server.core.ended["a"].verified)
    assert (next(calls) > MAX_FAILURES + 1) == is_on


def test_report_on_a_task_comes_before_the_answers_last_tokens(serve):
    """So the last response of a task's only request has it."""
    server = serve()
    server.core.add("a", PROMPT, PROMPT[1:30], options={"drafter": "lookup", "task": "copying"})
    server.core.run()
    *_, last = (each for each in server.reports.read() if each.records)
    assert "copying" in last.tasks


def test_head_with_trees_is_refused(serve):
    """The error names the parameter and its value."""
    with pytest.raises(ConfigurationError, match=r"head_tree_num_draft_tokens must be 0.*given 8"):
        serve(head_core(), **HEAD | {"head_tree_num_draft_tokens": "8"})


def test_vllm_without_a_hook_is_refused_by_its_name(serve, monkeypatch):
    """The error at the start says what this version lacks."""
    monkeypatch.delattr(ModelRunner, "take_draft_token_ids")
    with pytest.raises(ConfigurationError, match="need take_draft_token_ids"):
        serve()


def test_measurements_outlast_a_restart(serve, tmp_path):
    """The worker writes the controller's state file, and reads it when it starts again."""
    server = serve(control_state_file="state.json")
    for number in range(4):
        server.core.add(f"r{number}", PROMPT, PROMPT[1:38], options={"drafter": "auto"})
        server.core.run()
    server.worker.specdec_close()
    known = server.worker._specdec_drafting.controller.state()["acceptance"]
    assert known
    again = serve(control_state_file="state.json").worker._specdec_drafting.controller
    assert again.state()["acceptance"]
