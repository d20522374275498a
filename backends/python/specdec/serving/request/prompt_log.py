"""Log a sample of the prompts of tenants that agreed, to train drafters. Off by default."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from specdec.errors import ConfigurationError
from specdec.settings.prompt_log import ALL_TENANTS, PromptLogSettings
from specdec.token_ids import TokenIds

CURRENT, OLDER = "prompts.jsonl", "prompts.older.jsonl"
"""Names of the log's two files, each up to half the limit. When the first is full, it replaces the
second."""

MAX_WAITING = 256
"""Most prompts that wait to be written. Further ones are dropped, so that no request waits."""


class PromptLog:
    """The prompt log, which takes prompts from any thread and writes them on its own thread."""

    def __init__(
        self,
        directory: Path,
        settings: PromptLogSettings,
        warn: Callable[[str], None],
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Make the directory and start the thread.

        `warn` gets a message when writing begins to fail. `draw` returns random numbers in [0, 1)
        for the sampling. Raises ConfigurationError if the directory cannot be written.
        """
        self._directory = directory
        self._settings = settings
        self._warn = warn
        self._draw = draw
        self._waiting: queue.Queue[tuple[str | None, str, TokenIds] | None]
        self._waiting = queue.Queue(MAX_WAITING)
        self._is_broken = False
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(directory):
                pass
        except OSError as error:
            raise ConfigurationError(f"prompt_log_dir cannot be written: {error}") from error
        self._thread = threading.Thread(target=self._run, name="prompt log", daemon=True)
        self._thread.start()

    def offer(self, tenant: str | None, task: str, prompt: TokenIds) -> None:
        """Log a prompt, [n] int32, if its tenant agreed and it is sampled; return at once."""
        tenants = self._settings.tenants
        if ALL_TENANTS not in tenants and (tenant is None or tenant not in tenants):
            return
        if self._draw() < self._settings.share:
            with suppress(queue.Full):
                self._waiting.put_nowait((tenant, task, prompt))

    def close(self) -> None:
        """Write the waiting prompts and end the thread, within 10 s."""
        with suppress(queue.Full):  # The disk hangs.
            self._waiting.put(None, timeout=5)
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while (logged := self._waiting.get()) is not None:
            tenant, task, prompt = logged
            row = {"time_s": int(time.time()), "tenant": tenant, "task": task}
            row["input_ids"] = prompt.tolist()
            try:
                self._write(f"{json.dumps(row)}\n".encode())
                self._is_broken = False
            except OSError as error:
                # One warning is enough until a prompt is written again.
                if not self._is_broken:
                    self._warn(f"prompts are not logged: {error}")
                self._is_broken = True

    def _write(self, line: bytes) -> None:
        directory = self._directory
        # Other instances of the orchestrator write there too.
        with _locked(directory):
            current = directory / CURRENT
            size = current.stat().st_size if current.exists() else 0
            if size and size + len(line) > (self._settings.max_mb << 20) // 2:
                current.replace(directory / OLDER)
                size = 0
            descriptor = os.open(current, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(line)
            except OSError:  # A full disk leaves half a line, so it is cut off.
                with suppress(OSError):
                    os.truncate(current, size)
                raise


@dataclass(frozen=True, slots=True)
class LoggedPrompt:
    """One prompt of the log, with the task and the tenant that its request named."""

    tenant: str | None
    task: str
    input_ids: tuple[int, ...]


def read_log(directory: Path) -> list[LoggedPrompt]:
    """Return all prompts of a log, the oldest first; an empty list if nothing was logged yet.

    Invalid lines are skipped, such as one that a full disk cut short. Raises OSError if the
    directory does not exist or cannot be written to.
    """
    with _locked(directory):
        files = [each for each in (directory / OLDER, directory / CURRENT) if each.exists()]
        lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    found = []
    for line in lines:
        try:
            row = json.loads(line)
            ids = tuple(int(token) for token in row["input_ids"])
            found.append(LoggedPrompt(row["tenant"], str(row["task"]), ids))
        except (ValueError, KeyError, TypeError):
            continue
    return found


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock that all processes with this log share. Raises OSError if it fails."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
