"""Keep an error of one request from the others of its pass, and tell its client."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from specdec.errors import EngineFailedError, SpecdecError
from specdec.torch_engine.running import RunningTask
from specdec.torch_engine.task import Receiver, TaskOutput

logger = logging.getLogger(__name__)


class PassFailures:
    """Tasks whose own rows failed in one pass."""

    def __init__(self) -> None:
        self._errors: dict[RunningTask, Exception] = {}

    def __contains__(self, running: RunningTask) -> bool:
        return running in self._errors

    @contextmanager
    def alone(self, running: RunningTask) -> Iterator[None]:
        """Let an error within end this task only; the rest of the pass goes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - `ended` hands it on
            self._errors[running] = error

    def ended(self) -> Iterator[tuple[RunningTask, SpecdecError]]:
        """Yield each task that failed with what its client is told."""
        for running, error in self._errors.items():
            if isinstance(error, SpecdecError):
                yield running, error
            else:
                logger.error("a request failed in its pass", exc_info=error)
                yield running, failure_of("this request's row", error)


def send_last(receive: Receiver, output: TaskOutput) -> None:
    """Hand over a task's last output; one that the receiver cannot take is replaced by an error.

    Never raises: the task has ended, and the others of its pass go on.
    """
    try:
        receive(output)
    except Exception as error:
        logger.exception("a request's receiver failed")
        with suppress(Exception):  # It has just failed; this only keeps its client from waiting.
            receive(
                TaskOutput((), stats=output.stats, error=failure_of("handing over tokens", error))
            )


def failure_of(what: str, error: Exception) -> EngineFailedError:
    """Return what a client is told of an unexpected error in the engine."""
    return EngineFailedError(f"{what} failed: {type(error).__name__}: {error}")
