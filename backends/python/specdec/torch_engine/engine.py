"""One engine: a thread that owns the model, takes tasks from a queue and hands out their tokens.

Each task comes with a receiver, a function that is called with each of its outputs.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from specdec.errors import ConfigurationError, EngineFailedError, EngineLostError, SpecdecError
from specdec.health.board import NO_HEARTBEAT, Heartbeat, State
from specdec.health.occupancy import Occupancy, PeakOccupancy
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.preparing import Constraints, Preparations, Prepared
from specdec.torch_engine.scheduling.failures import failure_of, send_last
from specdec.torch_engine.scheduling.scheduler import Scheduler
from specdec.torch_engine.scheduling.tree import add_tree
from specdec.torch_engine.task import Receiver, Task, TaskOutput

logger = logging.getLogger(__name__)

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
_Action = Callable[[Scheduler], None]


IDLE_BEAT_S = 0.5
"""Seconds between two heartbeats of an engine that waits for work."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of one engine: its checkpoint, the device, and the limits."""

    checkpoint: Path
    limits: EngineLimits
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1` …; `auto` takes CUDA if PyTorch finds a device."""
    dtype: str = "bfloat16"
    """`bfloat16` or `float32`. `float32` needs twice the memory traffic, and its rows may depend on
    the batch."""
    num_threads: int = 0
    """Threads of an operation on a CPU; 0 for PyTorch's choice."""
    kernels: str = "auto"
    """Kernels that compute the layers: `auto`, `native`, `graph` or `torch` (see LlamaModel)."""
    weight_dtype: str = "auto"
    """`auto`, `int8` or `int8_if_native` (see LlamaModel). `int8` quantises the matrices on a CPU,
    which halves the memory traffic and changes tokens."""
    drafting_head_dir: Path | None = None
    """Directory of the checkpoint of a drafting head, EAGLE-3 or Medusa; None for no head."""


class TorchEngine:
    """A model on a thread of its own, which runs tasks as they arrive.

    Each task's receiver gets its outputs in order. It is called on the engine's thread, or on the
    thread "preparing" if the task fails before it is queued.
    """

    def __init__(self, settings: EngineSettings, heartbeat: Heartbeat = NO_HEARTBEAT) -> None:
        """Load the checkpoint; `heartbeat` tells the server's supervisor that the loop still runs.

        Raises ConfigurationError if the checkpoint cannot be served.
        """
        self._heartbeat = heartbeat
        self._occupancy = PeakOccupancy()
        self._inbox: queue.SimpleQueue[_Action] = queue.SimpleQueue()
        self._entry = threading.Lock()
        self._stopping = False
        # Its result is set once the model is loaded.
        vocab_size: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(settings, vocab_size), name="torch-engine", daemon=True
        )
        self._thread.start()
        self._preparations = Preparations(settings.checkpoint, vocab_size.result())
        self._constraints = Constraints(2 * settings.limits.max_num_sequences)

    def submit(self, task: Task, receive: Receiver) -> None:
        """Queue a task; `receive` gets its outputs, and the last one has `is_final` set.

        A new guide or list of bad texts is prepared first, on another thread. The task ends with
        UnsupportedError if the checkpoint's tokenizer is missing or unknown, and with
        InvalidRequestError for a guide that cannot be compiled. Raises EngineFailedError once the
        engine is shutting down or its loop has ended.
        """
        prepared = self._preparations.find(task.params)
        if prepared is not None:
            self._enqueue(task, prepared, receive)
        else:
            with self._entry:
                if self._stopping:
                    raise _shutting_down()
                self._preparations.run(partial(self._prepare, task, receive))

    def _prepare(self, task: Task, receive: Receiver) -> None:
        if self._stopping:
            send_last(receive, TaskOutput((), error=_shutting_down()))
            return
        try:
            self._enqueue(task, self._preparations.prepare(task.params), receive)
        except SpecdecError as error:
            send_last(receive, TaskOutput((), error=error))
        except Exception as error:
            logger.exception("a task could not be prepared")
            send_last(receive, TaskOutput((), error=failure_of("preparing a task", error)))

    def _enqueue(self, task: Task, prepared: Prepared, receive: Receiver) -> None:
        def add(scheduler: Scheduler) -> None:
            try:
                complete = self._constraints.complete(task, prepared)
                if complete.draft_parents:
                    add_tree(scheduler, complete, receive)
                else:
                    scheduler.add([complete], receive)
            except SpecdecError as error:
                send_last(receive, TaskOutput((), error=error))
            except Exception as error:  # A fault of one task must not end the loop.
                logger.exception("a task could not be queued")
                send_last(receive, TaskOutput((), error=failure_of("queueing a task", error)))

        self._post(add)

    def cancel(self, request_id: str) -> None:
        """End the tasks with this id before their next pass; an unknown id is no error.

        Raises EngineFailedError once the engine is shutting down or its loop has ended.
        """

        def cancel(scheduler: Scheduler) -> None:
            scheduler.cancel(request_id)

        with self._entry:
            if self._stopping:
                raise _shutting_down()
            self._put(cancel)
            if self._preparations.has_jobs:
                # The task may still be prepared. This cancels it after it is queued.
                self._preparations.run(partial(self._post, cancel))

    def occupancy(self) -> Occupancy:
        """Return how full the engine was at most since the last call."""
        return self._occupancy.take()

    def close(self, timeout_s: float = 10.0) -> None:
        """End all tasks and threads, and wait for them at most `timeout_s` seconds."""
        end_s = time.monotonic() + timeout_s
        with self._entry:
            self._stopping = True
            self._put(lambda _: None)
        self._preparations.close(timeout_s)
        self._thread.join(max(0.0, end_s - time.monotonic()))
        self._heartbeat.close()

    def _post(self, action: _Action) -> None:
        # Under the lock, so that nothing is queued after the last action of `close`.
        with self._entry:
            if self._stopping:
                raise _shutting_down()
            self._put(action)

    def _put(self, action: _Action) -> None:
        self._heartbeat.task_queued()
        self._inbox.put(action)

    def _take(self, scheduler: Scheduler, timeout_s: float | None = None) -> None:
        """Run the next action; raise queue.Empty if none comes within `timeout_s` seconds."""
        action = self._inbox.get(timeout=timeout_s)
        self._heartbeat.task_taken()
        action(scheduler)

    def _run(self, settings: EngineSettings, vocab_size: Future[int]) -> None:
        # PyTorch is used on this thread only, even for loading. A second thread with OpenMP workers
        # makes libgomp stop spinning, and then every step takes a third longer.
        try:
            scheduler = _load(settings)
        except BaseException as error:  # noqa: BLE001 - raised again by the constructor
            vocab_size.set_exception(error)
            return
        self._heartbeat.enter(State.SERVING)
        vocab_size.set_result(scheduler.vocab_size)
        try:
            while not self._stopping:
                self._go_round(scheduler)
            last_word = _shutting_down()
        except BaseException as failure:
            # No pass will follow: waiting clients get an error, the supervisor starts a new server.
            logger.exception("the engine's loop has ended")
            self._heartbeat.enter(State.FAILED)
            last_word = EngineLostError(f"the engine's loop has ended: {type(failure).__name__}")
            with self._entry:
                self._stopping = True
        self._take_all(scheduler)
        scheduler.fail_all(last_word)

    def _go_round(self, scheduler: Scheduler) -> None:
        """Run the queued actions and one pass; if idle, wait up to IDLE_BEAT_S for an action."""
        self._heartbeat.beat(is_working=scheduler.has_work)
        if not scheduler.has_work:
            try:
                self._take(scheduler, IDLE_BEAT_S)
            except queue.Empty:
                self._occupancy.note(Occupancy())
                return
            self._heartbeat.beat(is_working=True)
        self._take_in(scheduler)
        try:
            scheduler.step()
        except Exception as error:  # A failed pass ends its tasks, not the engine.
            logger.exception("a forward pass failed")
            scheduler.fail_all(failure_of("a forward pass", error))
        self._occupancy.note(scheduler.occupancy)

    def _take_in(self, scheduler: Scheduler) -> None:
        """Run all queued actions, and wait for rounds that the scheduler expects soon."""
        self._take_all(scheduler)
        scheduler.forget_absent_callers()
        while (wait_s := scheduler.wait_s) > 0.0:
            try:
                self._take(scheduler, wait_s)
            except queue.Empty:
                return
            self._take_all(scheduler)

    def _take_all(self, scheduler: Scheduler) -> None:
        while not self._inbox.empty():
            self._take(scheduler)


def _shutting_down() -> EngineFailedError:
    return EngineFailedError("the engine is shutting down")


def _load(settings: EngineSettings) -> Scheduler:
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if settings.dtype not in _DTYPES:
        raise ConfigurationError(
            f"dtype must be one of {sorted(_DTYPES)}; given {settings.dtype!r}"
        )
    model = LlamaModel(
        settings.checkpoint,
        settings.limits.num_cache_tokens,
        torch.device(device),
        _DTYPES[settings.dtype],
        settings.kernels,
        settings.weight_dtype,
        settings.num_threads,
        settings.drafting_head_dir,
    )
    if settings.limits.max_seq_len > model.config.max_position:
        raise ConfigurationError(
            f"max_seq_len is {settings.limits.max_seq_len}; the checkpoint {settings.checkpoint} "
            f"reads {model.config.max_position} tokens (max_position_embeddings)"
        )
    model.prepare(settings.limits)
    return Scheduler(model, settings.limits)
