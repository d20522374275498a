"""Run vLLM's AsyncLLM for a Triton model: tasks go in, and their tokens and rounds come out.

AsyncLLM runs its engine core in a process of its own. Here is one thread with the asyncio loop that
feeds it. `submit` and `cancel` may be called on any thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from specdec.engines.wire.engine_call import EngineCall
from specdec.errors import (
    ConfigurationError,
    EngineFailedError,
    EngineLostError,
    InvalidRequestError,
    SpecdecError,
)
from specdec.health.board import NO_HEARTBEAT, Heartbeat, State
from specdec.round_records import DraftingReport, RoundRecord, UnreadRounds
from specdec.settings.parameters import read_parameters
from specdec.settings.vllm_engine import VllmModelSettings
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.scheduling.failures import failure_of, send_last
from specdec.torch_engine.task import Receiver, Task, TaskOutput, TaskStats, fit
from specdec.vllm_engine.process import prepared_vllm
from specdec.vllm_engine.reports import ReportReader
from specdec.vllm_engine.sampling import sampling_arguments

logger = logging.getLogger(__name__)

BEAT_S = 0.5
"""Seconds between two looks at vLLM's progress, for the heartbeat."""


CLOSE_S = 5.0
"""Most seconds for the worker to write its files at a stop."""


class _Answer:
    """The answer of one task, as it comes from vLLM."""

    def __init__(self, task: Task, options: Mapping[str, Any], receive: Receiver) -> None:
        self.task = task
        self.task_label = str(options.get("task", ""))
        self.receive = receive
        self.rounds = UnreadRounds()
        self.stats = TaskStats(arrival_ns=task.arrival_ns)
        self.running: asyncio.Task[None] | None = None
        self.is_cancelled = False

    def output(self, tokens: tuple[int, ...], log_probs: tuple[float, ...]) -> TaskOutput:
        """Return the task's next output, with the rounds of its tokens."""
        rounds = self.rounds.take(len(tokens))
        now_ns, stats = time.monotonic_ns(), self.stats
        stats.first_scheduled_ns = stats.first_scheduled_ns or now_ns
        stats.first_token_ns = stats.first_token_ns or now_ns
        stats.last_token_ns = now_ns
        stats.num_draft_tokens += sum(each.num_draft_tokens for each in rounds)
        stats.num_accepted_tokens += sum(len(each.accepted_sources) for each in rounds)
        return TaskOutput(tokens, log_probs, drafting=DraftingReport(rounds))


class VllmEngine:
    """One vLLM engine, with our drafters in its worker."""

    def __init__(
        self,
        model_config: Mapping[str, Any],
        version_directory: Path,
        heartbeat: Heartbeat = NO_HEARTBEAT,
    ) -> None:
        """Start vLLM and wait until it can serve.

        `model_config` is Triton's model configuration. Relative paths in it start at
        `version_directory`. Raises ConfigurationError if vLLM cannot be started with it.
        """
        self._settings = read_parameters(VllmModelSettings, model_config)
        self._config = {"name": model_config["name"], "parameters": model_config["parameters"]}
        self._directory = version_directory
        self._heartbeat = heartbeat
        self._limits = EngineLimits(
            max_seq_len=self._settings.max_seq_len, max_draft_len=self._settings.max_draft_len
        )
        self._answers: dict[str, _Answer] = {}
        self._reports = ReportReader()
        self._task_reports: dict[str, dict[str, Any]] = {}
        """Newest report of the controller by task, until an answer takes it along."""
        self._failures: list[tuple[str, str]] = []
        """Failures of drafters, until an answer takes them along."""
        self._has_progressed = False
        self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        try:
            self._vllm, self._llm = self._call(self._start())
        except Exception as error:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise ConfigurationError(f"vLLM did not start: {error}") from error
        self._vocab_size = int(self._llm.model_config.get_vocab_size())
        self._heartbeat.enter(State.SERVING)
        asyncio.run_coroutine_threadsafe(self._watch(), self._loop)

    def submit(self, call: EngineCall, receive: Receiver) -> None:
        """Begin the call's task; `receive` is called with each of its outputs, in order.

        Raises InvalidRequestError or UnsupportedError for a task that vLLM cannot run, and
        EngineFailedError once the engine is closing.
        """
        if self._is_closing:
            raise EngineFailedError("the engine is shutting down")
        options = _options(call.drafting)
        task = fit(call.task, self._limits, self._vocab_size)
        arguments = sampling_arguments(task, options, has_drafts=self._settings.max_draft_len > 0)
        answer = _Answer(task, options, receive)
        self._loop.call_soon_threadsafe(self._begin, answer, arguments)

    def cancel(self, request_id: str) -> None:
        """End the task with this id; an unknown id is no error."""
        self._loop.call_soon_threadsafe(self._cancel, request_id)

    def close(self) -> None:
        """End all tasks and vLLM's processes."""
        self._is_closing = True
        with suppress(Exception):  # vLLM may have died; its processes end with this one.
            self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._reports.close()
        self._heartbeat.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # On the loop's thread.

    async def _start(self) -> tuple[Any, Any]:
        settings = self._settings
        vllm = prepared_vllm(settings.kv_cache_gib)

        drafter = settings.vllm_drafter_dir
        arguments = {
            "model": str(self._directory / settings.checkpoint_dir),
            "dtype": settings.dtype,
            "max_model_len": settings.max_seq_len,
            "max_num_seqs": settings.max_num_sequences,
            "speculative_config": settings.speculative_config(
                str(self._directory / drafter) if drafter else ""
            ),
            "worker_extension_cls": "specdec.vllm_engine.worker.SpecdecWorker",
            # vLLM's scheduler must know the draft tokens before it begins the next step.
            "async_scheduling": False,
            "disable_log_stats": True,
            **settings.engine_args,
        }
        engine_args = vllm.AsyncEngineArgs(**arguments)
        llm = vllm.AsyncLLMEngine.from_engine_args(engine_args)
        if settings.max_draft_len:
            bound = await llm.collective_rpc(
                "specdec_bind",
                args=(json.dumps(self._config), str(self._directory), self._reports.address),
            )
            runners = ", ".join(filter(None, bound))
            logger.info("vLLM %s (%s): our drafters are bound", vllm.__version__, runners)
        return vllm, llm

    def _begin(self, answer: _Answer, arguments: dict[str, Any]) -> None:
        self._answers[answer.task.request_id] = answer
        self._heartbeat.beat(is_working=True)
        answer.running = self._loop.create_task(self._answer(answer, arguments))

    def _cancel(self, request_id: str) -> None:
        answer = self._answers.get(request_id)
        if answer is not None and answer.running is not None:
            answer.is_cancelled = True
            answer.running.cancel()

    async def _answer(self, answer: _Answer, arguments: dict[str, Any]) -> None:
        """Run a task to its end; its receiver gets one last output in any case."""
        try:
            last = await self._generate(answer, arguments)
        except asyncio.CancelledError:
            last = answer.output((), ())
        except SpecdecError as error:
            last = TaskOutput((), error=error)
        except Exception as error:  # noqa: BLE001 - the client gets it
            last = TaskOutput((), error=self._error_of(error))
        finally:
            self._answers.pop(answer.task.request_id, None)
        if last.error is None:
            last = self._final(last, answer)
        send_last(answer.receive, last)

    async def _generate(self, answer: _Answer, arguments: dict[str, Any]) -> TaskOutput:
        """Hand out the outputs of a task; return the last one."""
        task, vllm = answer.task, self._vllm
        kind = vllm.sampling_params.RequestOutputKind.DELTA
        params = vllm.SamplingParams(**arguments, output_kind=kind)
        prompt = vllm.TokensPrompt(prompt_token_ids=task.input_ids.tolist())
        if task.cache_salt:
            prompt["cache_salt"] = task.cache_salt
        async for part in self._llm.generate(prompt, params, task.request_id):
            self._read_reports()
            completion = part.outputs[0]
            tokens = tuple(completion.token_ids)
            if part.finished and tokens[-1:] == (task.end_id,):
                tokens = tokens[:-1]
            log_probs: tuple[float, ...] = ()
            if task.wants_log_probs:
                drawn = zip(completion.token_ids, completion.logprobs, strict=True)
                log_probs = tuple(float(each[token].logprob) for token, each in drawn)
            output = answer.output(tokens, log_probs[: len(tokens)])
            if part.finished:
                return output
            answer.receive(output)
        raise EngineFailedError("vLLM ended the answer without a last token")

    def _read_reports(self) -> None:
        """Take the reports of the steps that have ended."""
        for report in self._reports.read():
            self._has_progressed = True
            for request_id, record in report["rounds"].items():
                answer = self._answers.get(request_id)
                if answer is not None:
                    answer.rounds.add(RoundRecord.from_json(record))
            self._task_reports |= report["tasks"]
            self._failures += ((drafter, reason) for drafter, reason in report["failures"])
            if report["num_lost"]:
                logger.warning("the reports of %d steps were lost", report["num_lost"])

    def _final(self, output: TaskOutput, answer: _Answer) -> TaskOutput:
        """Return the last output with the task's times and counts, and the news of drafters."""
        assert output.drafting is not None
        report = replace(
            output.drafting,
            task=self._task_reports.pop(answer.task_label, None),
            failures=tuple(self._failures),
        )
        self._failures = []
        return replace(output, drafting=report, stats=answer.stats)

    def _error_of(self, error: Exception) -> SpecdecError:
        """Return the error that a client gets for an error of vLLM."""
        if isinstance(error, self._vllm.v1.engine.exceptions.EngineDeadError):
            self._heartbeat.enter(State.FAILED)
            return EngineLostError("vLLM's engine process has died")
        client_error = getattr(self._vllm.exceptions, "VLLMClientError", ValueError)
        if isinstance(error, client_error):
            return InvalidRequestError(f"vLLM refused the request: {error}")
        logger.error("a request failed in vLLM", exc_info=error)
        return failure_of("vLLM", error)

    async def _watch(self) -> None:
        """Report that vLLM works: a step ended lately, or nothing is to be done."""
        while not self._is_closing:
            self._read_reports()
            if self._llm.errored:
                self._heartbeat.enter(State.FAILED)
                return
            if self._has_progressed or not self._answers:
                self._has_progressed = False
                self._heartbeat.beat(is_working=bool(self._answers))
            await asyncio.sleep(BEAT_S)

    async def _stop(self) -> None:
        running = [each.running for each in self._answers.values() if each.running is not None]
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._settings.max_draft_len and not self._llm.errored:
            await asyncio.wait_for(self._llm.collective_rpc("specdec_close"), CLOSE_S)
        self._llm.shutdown()


def _options(drafting: str) -> dict[str, Any]:
    """Return the drafting options of a call; without any, the request is not speculated on."""
    try:
        found = json.loads(drafting) if drafting else {"num_draft_tokens": 0}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidRequestError("drafting must be a JSON object")
    return found
