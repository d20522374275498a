"""Serve tasks by an engine with a batch loop of its own and our drafters inside."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from specdec.batch_drafting.building import usable_drafters
from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_engines.answers import Answer, Answers
from specdec.batch_engines.generator import Generator
from specdec.batch_engines.reports import Reports
from specdec.engines.wire.engine_call import EngineCall
from specdec.errors import ConfigurationError, EngineFailedError, InvalidRequestError
from specdec.health.board import Heartbeat, State
from specdec.health.occupancy import Occupancy
from specdec.round_records import Rounds
from specdec.settings.batch_engine import BatchEngineSettings
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.task import Receiver, Task, fit

STOP_S = 15.0
"""Most seconds to wait for the engine to stop; one that hangs ends with its process."""
LOOP_END_S = 10.0
"""Most seconds to wait for the end of the asyncio loop's thread."""


class BatchEngine(ABC):
    """An engine with a batch loop of its own, and the thread of the asyncio loop that feeds it.

    `submit` and `cancel` may be called on any thread.
    """

    name: str
    """Name in messages."""

    def __init__(
        self, settings: BatchEngineSettings, reports: Reports, heartbeat: Heartbeat
    ) -> None:
        """Start the engine and wait until it can serve.

        Raises ConfigurationError if it cannot be started with these settings.
        """
        self._drafters = settings.drafters.ids
        self._heartbeat = heartbeat
        self._limits = EngineLimits(
            max_seq_len=settings.max_seq_len, max_draft_len=settings.max_draft_len
        )
        self._is_closing = False
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=self.name, daemon=True)
        self._thread.start()
        try:
            generator, self._vocab_size = self._call(self._start())
        except Exception as error:
            with suppress(Exception):  # Parts of it may not exist.
                self._call(self._stop(), STOP_S)
            self._end_loop()
            reason = str(error).removeprefix(f"{ConfigurationError.error_type}: ")
            raise ConfigurationError(f"{self.name} did not start: {reason}") from error
        self._answers = Answers(generator, reports, heartbeat)
        self._heartbeat.enter(State.SERVING)
        self._watch = asyncio.run_coroutine_threadsafe(self._answers.watch(), self._loop)

    def submit(self, call: EngineCall, receive: Receiver) -> None:
        """Begin the call's task; `receive` is called with each of its outputs, in order.

        Raises InvalidRequestError or UnsupportedError for a task that the engine cannot run, and
        EngineFailedError once the engine is closing.
        """
        if self._is_closing:
            raise EngineFailedError("the engine is shutting down")
        task = fit(call.task, self._limits, self._vocab_size)
        # Callers may choose equal ids, or none.
        task = replace(task, request_id=f"{task.request_id}#{next(self._numbers)}")
        options = self._options(call.drafting, task.max_new_tokens)
        arguments = self._arguments(task, options)
        answer = Answer(task, call.task.request_id, options.task, receive, self._rounds())
        self._loop.call_soon_threadsafe(self._answers.begin, answer, arguments)

    def cancel(self, request_id: str) -> None:
        """End the task with this id; an unknown id is no error."""
        self._loop.call_soon_threadsafe(self._answers.cancel, request_id)

    def occupancy(self) -> Occupancy | None:
        """Return how full the engine was at most since the last call; None if it cannot tell."""
        return None

    def close(self) -> None:
        """End all tasks and the engine. A second call has no effect."""
        if self._is_closing:
            return
        self._is_closing = True
        # A stopped engine must not look like a failed one.
        self._watch.cancel()
        with suppress(Exception):  # The engine may have died; its processes end with this one.
            self._call(self._end(), STOP_S)
        self._end_loop()
        self._heartbeat.close()

    @abstractmethod
    async def _start(self) -> tuple[Generator, int]:
        """Start the engine; return it and its vocabulary's number of tokens."""

    @abstractmethod
    async def _stop(self) -> None:
        """Stop the engine after all answers have ended."""

    @abstractmethod
    def _arguments(self, task: Task, options: DraftingOptions) -> Any:
        """Return the arguments of `Generator.generate`.

        Raises UnsupportedError for what the engine cannot do.
        """

    @abstractmethod
    def _rounds(self) -> Rounds:
        """Return the rounds of a new request."""

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=LOOP_END_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        try:
            await self._answers.end_all()
        finally:
            await self._stop()

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
        usable_drafters(options, self._drafters)
        return options

    def _call(self, work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)
