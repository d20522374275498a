"""One engine: a thread that owns the model, a queue of tasks in, outputs to their receivers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import torch

from specdec.errors import EngineFailedError, SpecdecError
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduler import Receiver, Scheduler, Task, TaskOutput

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """A checkpoint, where it runs and how much it takes on."""

    checkpoint: Path
    limits: EngineLimits
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1` …; `auto` takes CUDA where there is one."""
    num_threads: int = 0
    """Threads inside an operation on a CPU; 0 leaves PyTorch's choice."""


class TorchEngine:
    """Runs tasks as they come; receivers are called on the engine's thread, in order."""

    def __init__(self, settings: EngineSettings) -> None:
        """Loads the checkpoint. Raises ConfigurationError if it cannot be served."""
        self._work_arrived = threading.Condition()
        self._inbox: list[Callable[[Scheduler], None]] = []
        self._stopping = False
        loaded: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(settings, loaded), name="torch-engine", daemon=True
        )
        self._thread.start()
        loaded.result()

    def submit(self, task: Task, receive: Receiver) -> None:
        """Queues a task; `receive` gets its outputs, the last one with is_final."""

        def add(scheduler: Scheduler) -> None:
            try:
                scheduler.add(task, receive)
            except SpecdecError as error:
                receive(TaskOutput((), error=error))

        self._post(add)

    def cancel(self, request_id: str) -> None:
        """Ends the tasks of that id within a pass; unknown ids are fine."""
        self._post(lambda scheduler: scheduler.cancel(request_id))

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends what runs, then the thread."""
        with self._work_arrived:
            self._stopping = True
            self._work_arrived.notify()
        self._thread.join(timeout_s)

    def _post(self, action: Callable[[Scheduler], None]) -> None:
        with self._work_arrived:
            if self._stopping:
                raise EngineFailedError("the engine is shutting down")
            self._inbox.append(action)
            self._work_arrived.notify()

    def _run(self, settings: EngineSettings, loaded: Future[None]) -> None:
        # PyTorch is used on this thread alone, loading included: a second thread with a team of
        # OpenMP workers makes libgomp give up spinning, and every step a third slower.
        try:
            scheduler = _load(settings)
        except BaseException as error:  # noqa: BLE001 - raised again by the constructor
            loaded.set_exception(error)
            return
        loaded.set_result(None)
        while True:
            with self._work_arrived:
                while not (self._inbox or scheduler.has_work or self._stopping):
                    self._work_arrived.wait()
                actions, self._inbox = self._inbox, []
                stopping = self._stopping
            for action in actions:
                action(scheduler)
            if stopping:
                scheduler.fail_all(EngineFailedError("the engine is shutting down"))
                return
            try:
                scheduler.step()
            except Exception as error:  # The engine outlives a pass that fails.
                logger.exception("a forward pass failed")
                message = f"a forward pass failed: {type(error).__name__}: {error}"
                scheduler.fail_all(EngineFailedError(message))


def _load(settings: EngineSettings) -> Scheduler:
    if settings.num_threads:
        torch.set_num_threads(settings.num_threads)
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    num_cache_tokens = settings.limits.num_cache_tokens
    model = LlamaModel(settings.checkpoint, num_cache_tokens, torch.device(device))
    return Scheduler(model, settings.limits)
