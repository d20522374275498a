"""Run vLLM's AsyncLLM for a Triton model.

AsyncLLM runs its engine core in a process of its own. Here is one thread with the asyncio loop that
feeds it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from specdec.batch_drafting.building import usable_drafters
from specdec.batch_drafting.options import DraftingOptions
from specdec.engines.wire.engine_call import EngineCall
from specdec.errors import ConfigurationError, EngineFailedError, InvalidRequestError
from specdec.health.board import NO_HEARTBEAT, Heartbeat, State
from specdec.settings.parameters import read_parameters
from specdec.settings.vllm_engine import VllmModelSettings
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.task import Receiver, fit
from specdec.vllm_engine.answers import Answer, Answers
from specdec.vllm_engine.process import prepared_vllm
from specdec.vllm_engine.reports import ReportReader
from specdec.vllm_engine.sampling import sampling_arguments

logger = logging.getLogger("vllm.specdec")

CLOSE_S = 5.0
"""Most seconds for the worker to write its files at a stop."""


class VllmEngine:
    """One vLLM engine, with our drafters in its worker.

    `submit` and `cancel` may be called on any thread.
    """

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
        self._reports = ReportReader()
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
        self._answers = Answers(self._vllm, self._llm, self._reports, heartbeat)
        self._heartbeat.enter(State.SERVING)
        asyncio.run_coroutine_threadsafe(self._answers.watch(), self._loop)

    def submit(self, call: EngineCall, receive: Receiver) -> None:
        """Begin the call's task; `receive` is called with each of its outputs, in order.

        Raises InvalidRequestError or UnsupportedError for a task that vLLM cannot run, and
        EngineFailedError once the engine is closing.
        """
        if self._is_closing:
            raise EngineFailedError("the engine is shutting down")
        task = fit(call.task, self._limits, self._vocab_size)
        options = self._options(call.drafting, task.max_new_tokens)
        has_drafts = self._settings.max_draft_len > 0
        arguments = sampling_arguments(task, options.to_json(), has_drafts=has_drafts)
        answer = Answer(task, options.task, receive)
        self._loop.call_soon_threadsafe(self._answers.begin, answer, arguments)

    def cancel(self, request_id: str) -> None:
        """End the task with this id; an unknown id is no error."""
        self._loop.call_soon_threadsafe(self._answers.cancel, request_id)

    def close(self) -> None:
        """End all tasks and vLLM's processes."""
        self._is_closing = True
        with suppress(Exception):  # vLLM may have died; its processes end with this one.
            self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._reports.close()
        self._heartbeat.close()

    def _options(self, drafting: str, max_tokens: int) -> DraftingOptions:
        """Return the drafting options of a call; without any, the task is not speculated on."""
        try:
            given = json.loads(drafting) if drafting else {"num_draft_tokens": 0}
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise InvalidRequestError("drafting must be a JSON object")
        options = DraftingOptions.from_json({**given, "max_tokens": max_tokens})
        outside = [token for token in options.prediction if token >= self._vocab_size]
        if outside:
            raise InvalidRequestError(
                f"prediction contains token {outside[0]}; the vocabulary has {self._vocab_size}"
            )
        usable_drafters(options, self._settings.drafters.ids)
        return options

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
        llm = vllm.AsyncLLMEngine.from_engine_args(vllm.AsyncEngineArgs(**arguments))
        if settings.max_draft_len:
            given = json.dumps(self._config), str(self._directory), self._reports.address
            runners = await llm.collective_rpc("specdec_bind", args=given)
            names = ", ".join(filter(None, runners))
            logger.info("vLLM %s: our drafters are bound to %s", vllm.__version__, names)
        return vllm, llm

    async def _stop(self) -> None:
        try:
            await self._answers.end_all()
            if self._settings.max_draft_len and not self._llm.errored:
                await asyncio.wait_for(self._llm.collective_rpc("specdec_close"), CLOSE_S)
        finally:
            self._llm.shutdown()
