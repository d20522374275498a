"""Errors of single tasks: such an error ends one task and reaches its client; the pass goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from specdec.errors import EngineFailedError, SpecdecError
from specdec.torch_engine.scheduling.running import RunningTask
from specdec.torch_engine.task import Receiver, TaskOutput

logger = logging.getLogger(__name__)


class PassFailures:
    """The tasks whose own rows failed in one pass, with their errors."""

    def __init__(self) -> None:
        self._errors: dict[RunningTask, Exception] = {}

    def __contains__(self, running: RunningTask) -> bool:
        return running in self._errors

    @contextmanager
    def catching(self, running: RunningTask) -> Iterator[None]:
        """Record an error from the `with` block as this task's own, and let the pass go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - `ended` hands it on
            self._errors[running] = error

    def ended(self) -> Iterator[tuple[RunningTask, SpecdecError]]:
        """Yield each failed task with the error for its client.

        Unexpected exceptions are logged and become EngineFailedError.
        """
        for running, error in self._errors.items():
            if isinstance(error, SpecdecError):
                yield running, error
            else:
                logger.error("a request failed in its pass", exc_info=error)
                yield running, failure_of("this request's row", error)


def send_last(receive: Receiver, output: TaskOutput) -> None:
    """Hand a task's last output to its receiver, or an error if the receiver fails on the output.

    Never raises, because the other tasks of the pass must go on.
    """
    try:
        receive(output)
    except Exception as error:
        logger.exception("a request's receiver failed")
        # The receiver may fail again. The attempt keeps its client from waiting for ever.
        with suppress(Exception):
            receive(
                TaskOutput((), stats=output.stats, error=failure_of("handing over tokens", error))
            )


def failure_of(what: str, error: Exception) -> EngineFailedError:
    """Return the error that a client gets if `what`, a step of the engine, failed unexpectedly."""
    return EngineFailedError(f"{what} failed: {type(error).__name__}: {error}")
