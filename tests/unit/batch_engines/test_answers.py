"""Tests of the answers that an engine generates, with a double of vLLM's AsyncLLM."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from specdec.batch_engines.answers import Answer, Answers, PendingReports
from specdec.batch_engines.reports import StepReport
from specdec.batch_engines.vllm.generator import VllmGenerator
from specdec.errors import EngineFailedError, EngineLostError, InvalidRequestError
from specdec.health.board import State
from specdec.round_records import RoundRecord, UnreadRounds
from specdec.torch_engine.task import Task

TASK_REPORT = {"choice": None, "num_switches": [1, 2]}


class EngineDeadError(Exception):
    """As vllm.v1.engine.exceptions.EngineDeadError."""


class VLLMClientError(Exception):
    """As vllm.exceptions.VLLMClientError."""


VLLM = SimpleNamespace(
    SamplingParams=lambda **given: given,
    TokensPrompt=lambda **given: given,
    sampling_params=SimpleNamespace(RequestOutputKind=SimpleNamespace(DELTA="delta")),
    exceptions=SimpleNamespace(VLLMClientError=VLLMClientError),
    v1=SimpleNamespace(
        engine=SimpleNamespace(exceptions=SimpleNamespace(EngineDeadError=EngineDeadError))
    ),
)


@dataclass
class Part:
    """As vllm.RequestOutput, for one answer."""

    tokens: list[int]
    reason: str | None = None

    @property
    def finished(self):
        return self.reason is not None

    @property
    def outputs(self):
        log_probs = [{token: SimpleNamespace(logprob=-float(token))} for token in self.tokens]
        completion = SimpleNamespace(
            token_ids=self.tokens, finish_reason=self.reason, logprobs=log_probs
        )
        return [completion]


class FakeLLM:
    """As vllm.AsyncLLM: answers with `parts`, then waits; an exception among them is raised."""

    async def collective_rpc(self, method):
        self.pings.append(method)
        await asyncio.sleep(self.step_s)

    def __init__(self, parts):
        self.pings, self.step_s = [], 0.0
        self.parts = parts
        self.errored = False
        self.asked = []
        self.aborted = []

    async def generate(self, prompt, params, request_id):
        self.asked.append((prompt, params))
        try:
            for part in self.parts:
                await asyncio.sleep(0)
                if isinstance(part, Exception):
                    raise part
                yield part
                if part.finished:
                    return
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # as AsyncLLM, which awaits its own abort
            self.aborted.append(request_id)
            raise


class Reports:
    """As ReportReader, for reports that are known beforehand."""

    def __init__(self, *reports):
        self.reports = [*reports]

    def read(self):
        reports, self.reports = self.reports, []
        return reports


class Heartbeat:
    """A heartbeat that records what it is told."""

    def __init__(self):
        self.states, self.beats = [], []

    def enter(self, state):
        self.states.append(state)

    def beat(self, *, is_working):
        self.beats.append(is_working)


class Bench:
    """Answers over a double of AsyncLLM, and what the receiver of a task got."""

    def __init__(self, parts=(), reports=(), **fields):
        self.llm, self.heartbeat = FakeLLM(parts), Heartbeat()
        self.answers = Answers(VllmGenerator(VLLM, self.llm), Reports(*reports), self.heartbeat)
        ids = np.asarray([1, 2, 3], dtype=np.int32)
        self.task = Task("id", ids, 8, **fields)
        self.outputs = []

    def begin(self):
        answer = Answer(self.task, "call", "qa", self.outputs.append, UnreadRounds())
        self.answers.begin(answer, {"max_tokens": 8})

    async def ended(self):
        """Wait for the last output, and return it."""
        for _ in range(100):
            if self.outputs and self.outputs[-1].is_final:
                return self.outputs[-1]
            await asyncio.sleep(0)
        raise AssertionError("no last output")


def answered(bench):
    """Run the bench's task to its end; return the last output."""

    async def run():
        bench.begin()
        return await bench.ended()

    return asyncio.run(run())


def test_outputs_have_the_rounds_of_their_tokens():
    """The rounds come from the worker's reports; the last output also has the task's report."""
    reports = [
        StepReport({"id": RoundRecord(1), "other": RoundRecord(3, 3, "x", (1, 1))}),
        StepReport({"id": RoundRecord(3, 4, "lookup", (1, 1), 0.25, first=1)}, {"qa": TASK_REPORT}),
        StepReport(failures=[("suffix", "internal")]),
    ]
    parts = [Part([5]), Part([6, 7, 8], "length")]
    bench = Bench(parts, reports, wants_log_probs=True, cache_salt="tenant")
    last = answered(bench)
    assert [each.tokens for each in bench.outputs] == [(5,), (6, 7, 8)]
    assert bench.outputs[1].log_probs == (-6.0, -7.0, -8.0)
    assert [each.num_tokens for each in bench.outputs[0].drafting.rounds] == [1]
    assert last.drafting.rounds[0].accepted_sources == (1, 1)
    assert (last.stats.num_draft_tokens, last.stats.num_accepted_tokens) == (4, 2)
    assert last.drafting.task == TASK_REPORT | {"num_switches": [1, 2]}
    assert last.drafting.failures == (("suffix", "internal"),)
    prompt, params = bench.llm.asked[0]
    assert prompt == {"prompt_token_ids": [1, 2, 3], "cache_salt": "tenant"}
    assert params == {"max_tokens": 8, "output_kind": "delta"}


def test_end_token_is_not_part_of_the_answer():
    """The contract leaves it out, as NVIDIA's backend does."""
    last = answered(Bench([Part([5, 6, 0], "stop")], end_id=0))
    assert last.tokens == (5, 6)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (VLLMClientError("too long"), InvalidRequestError, "too long"),
        (EngineDeadError(), EngineLostError, "has died"),
        (RuntimeError("broken"), EngineFailedError, "broken"),
        (Part([5], "abort"), EngineFailedError, "'abort'"),
    ],
)
def test_error_of_vllm_reaches_the_client(error, kind, text):
    """A refused request is the client's fault; an answer that vLLM cuts is not complete."""
    last = answered(Bench([Part([5]), error]))
    assert type(last.error) is kind
    assert text in str(last.error)


def test_dead_engine_is_reported_to_the_heartbeat():
    """The supervisor then starts the server anew."""
    bench = Bench([EngineDeadError()])
    answered(bench)
    assert bench.heartbeat.states == [State.FAILED]


@pytest.mark.parametrize("num_turns", [0, 1, 5])
def test_cancelled_answer_gets_one_last_output(num_turns):
    """However early the request to end it comes, and however often."""
    bench = Bench([Part([5])], [StepReport(failures=[("suffix", "internal")])])

    async def run():
        bench.begin()
        for _ in range(num_turns):
            await asyncio.sleep(0)
        for _ in range(3):
            bench.answers.cancel("call")
            await asyncio.sleep(0)
        last = await bench.ended()
        await bench.answers.end_all()
        return last

    last = asyncio.run(run())
    assert last.error is None
    assert last.stats is not None
    assert sum(each.is_final for each in bench.outputs) == 1
    assert len(bench.llm.aborted) == len(bench.llm.asked)
    assert last.drafting.failures == ()  # No client reads it, so reports wait for another answer.


@pytest.mark.parametrize("num_turns", [0, 5])
def test_answers_at_a_stop_end_with_an_error(num_turns):
    """A part of an answer must not look like a whole one."""
    bench = Bench([Part([5])])

    async def run():
        bench.begin()
        for _ in range(num_turns):
            await asyncio.sleep(0)
        await bench.answers.end_all()
        return await bench.ended()

    assert "shutting down" in str(asyncio.run(run()).error)


@pytest.mark.parametrize(
    ("progresses", "step_s", "beats"), [(True, 60, True), (False, 60, False), (False, 0, True)]
)
def test_heart_beats_while_vllm_progresses(monkeypatch, progresses, step_s, beats):
    """A vLLM that hangs with a request gives no output and ends no step, and the beats stop.

    One that reads a long prompt ends steps.
    """
    bench = Bench([Part([5])] if progresses else [])
    bench.llm.step_s = step_s

    async def run():
        watching = asyncio.ensure_future(bench.answers.watch())
        await asyncio.sleep(0)  # The first beat, without a request.
        bench.begin()
        for _ in range(5):
            await asyncio.sleep(0)
        monkeypatch.setattr("specdec.batch_engines.answers.BEAT_S", 0.0)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        again = asyncio.ensure_future(bench.answers.watch())
        for _ in range(5):
            await asyncio.sleep(0)
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
        await bench.answers.end_all()

    asyncio.run(run())
    assert bench.heartbeat.beats[0] is False
    assert any(bench.heartbeat.beats[1:]) == beats


def test_pending_reports_add_up_until_taken():
    """A newer report replaces an older one, but no switch and no failure is lost."""
    pending = PendingReports()
    pending.add({"qa": TASK_REPORT}, [("a", "x")])
    pending.add({"qa": {"choice": 1, "num_switches": [0, 1]}}, [("b", "y")])
    found = pending.take("qa")
    assert found.task == {"choice": 1, "num_switches": [1, 3]}
    assert found.failures == (("a", "x"), ("b", "y"))
    assert pending.take("qa").task is None
    assert pending.take("qa").failures == ()
