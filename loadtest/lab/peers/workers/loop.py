"""The loop of a worker: load, send a `Hello`, answer questions until stdin ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Protocol

from specdec.loadtest.lab.peers.protocol import Answer, Hello, Question, Reply, WorkerSettings

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Engine(Protocol):
    """A loaded peer in one mode."""

    version: str

    def answer(self, question: Question) -> tuple[Answer, ...]:
        """Answer all prompts; the whole call is timed."""


def end_with_parent() -> None:
    """Let the kernel kill this process if its parent dies; a paused one would not notice it."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(load: Callable[[WorkerSettings], Engine]) -> None:
    """Run until stdin ends; everything that libraries print goes to stderr.

    An exception in `load` is sent as a `Hello` and raised again.
    """
    end_with_parent()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        engine = load(WorkerSettings.parse(sys.argv[1]))
    except Exception as error:
        lines.write(Hello(error=describe(error)).line() + "\n")
        raise
    lines.write(Hello(version=engine.version).line() + "\n")
    for line in sys.stdin:
        lines.write(_reply(engine, Question.parse(line)).line() + "\n")


def describe(error: Exception) -> str:
    """Return an error in one line, its type first."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"


def _reply(engine: Engine, question: Question) -> Reply:
    start_s = time.perf_counter()
    try:
        answers = engine.answer(question)
    except Exception as error:  # noqa: BLE001 - a peer's failure is a row of the table
        return Reply(error=describe(error))
    return Reply(answers, time.perf_counter() - start_s)
