"""The loop of a worker: load, send a `Hello`, answer questions until stdin ends."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from loadtest.lab.peers.protocol import Answer, Hello, Question, Reply

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings that a worker is started with.

    `target`, `draft` and `head` are paths in the form that the peer reads; `head` may be "".
    """

    mode: str
    target: str
    draft: str
    head: str
    end_id: int
    num_threads: int


class Engine(Protocol):
    """A loaded peer in one mode."""

    version: str

    def answer(self, question: Question) -> tuple[Answer, ...]:
        """Answer all prompts; the whole call is timed."""


def serve(load: Callable[[WorkerSettings], Engine]) -> None:
    """Run until stdin ends; everything that libraries print goes to stderr.

    An exception in `load` is sent as a `Hello` and raised again.
    """
    # A paused worker would not notice that its parent has died, so the kernel kills it then.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        engine = load(_settings())
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


def _settings() -> WorkerSettings:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--head", default="")
    parser.add_argument("--end-id", type=int, required=True)
    parser.add_argument("--num-threads", type=int, required=True)
    return WorkerSettings(**vars(parser.parse_args()))
