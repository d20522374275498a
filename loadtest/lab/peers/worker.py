"""A peer's worker process, from the bench's side."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from specdec.folders import PACKAGE
from specdec.loadtest.lab.peers.catalogue import Peer, PeerArm
from specdec.loadtest.lab.peers.protocol import Hello, PeerError, Question, Reply, WorkerSettings
from specdec.loadtest.lab.peers.weights import PairPaths

START_TIMEOUT_S = 300.0  # vLLM compiles when it is first started.
ANSWER_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """The command that starts one arm of a peer, and its environment."""

    peer: Peer
    arm: PeerArm
    paths: PairPaths
    end_id: int
    cache: Path

    @property
    def words(self) -> list[str]:
        """The command: the module of the peer's worker, in the peer's Python, with its settings."""
        target, draft, head = str(self.paths.target), str(self.paths.draft), self.paths.head
        given = WorkerSettings(
            self.arm.mode, target, draft, str(head or ""), self.end_id, num_cores()
        )
        module = f"specdec.loadtest.lab.peers.workers.{self.peer.name}"
        return [str(self.peer.python(self.cache)), "-m", module, given.line()]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables: all cores for every worker, and no look-ups on the network."""
        directory = self.cache / self.peer.name
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
        own = {
            name: value.format(cores=cores, cache=directory / "cache")
            for name, value in self.peer.environment.items()
        }
        if self.peer.preload:
            own["LD_PRELOAD"] = str(directory / "venv" / self.peer.preload)
        path = f"{self.peer.python(self.cache).parent}:{os.environ.get('PATH', '')}"
        common = {"OMP_NUM_THREADS": str(num_cores()), "HF_HUB_OFFLINE": "1", "PATH": path}
        return {**os.environ, **common, **own}

    def make_import_folder(self) -> Path:
        """Make the folder from which the peer's Python imports `specdec`, and nothing else of ours.

        It is the working directory of the worker, and holds only a link to the package.
        """
        folder = self.cache / "imports"
        folder.mkdir(exist_ok=True)
        link = folder / "specdec"
        link.unlink(missing_ok=True)
        link.symlink_to(PACKAGE)
        return folder


class Worker:
    """Answers questions in a process of its own; `pause` it while others are measured."""

    def __init__(self, command: WorkerCommand) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._log_path = command.cache / command.peer.name / f"{command.arm.mode}.log"

    def start(self) -> str:
        """Load the model and return the peer's version. Raises PeerError if that fails."""
        with self._log_path.open("wb") as log:
            # With a session of its own it gets no Ctrl-C: the bench does, and ends its workers.
            self._process = subprocess.Popen(
                self._command.words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                cwd=self._command.make_import_folder(),
                env=self._command.environment,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        hello = Hello.parse(self._next_line(START_TIMEOUT_S))
        if hello.error:
            raise PeerError(hello.error)
        return hello.version

    def ask(self, question: Question) -> Reply:
        """Send a question and return the reply.

        Raises PeerError if the peer fails, ends, or takes longer than ANSWER_TIMEOUT_S.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # The missing answer tells more than a broken pipe.
            self._process.stdin.write(question.line() + "\n")
            self._process.stdin.flush()
        reply = Reply.parse(self._next_line(ANSWER_TIMEOUT_S))
        if reply.error:
            raise PeerError(reply.error)
        return reply

    def pause(self) -> None:
        if self._process is not None:
            pause_tree(self._process.pid)

    def resume(self) -> None:
        if self._process is not None:
            resume_tree(self._process.pid)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        resume_tree(process.pid)
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join()
        assert process.stdout is not None
        process.stdout.close()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)
        self._lines.put("")

    @property
    def _log(self) -> str:
        """The log's short path: this machine's folders must not end up in a results file."""
        return f"log in {'/'.join(self._log_path.parts[-2:])}"

    def _next_line(self, timeout_s: float) -> str:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise PeerError(f"no answer within {timeout_s:g} s; {self._log}") from None
        if not line:
            raise PeerError(f"its process ended; {self._log}")
        return line


def tree(root: int) -> list[psutil.Process]:
    """Return the process `root` and its descendants, parents before children; [] if it ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    return []


def pause_tree(root: int) -> None:
    """Suspend the tree: an idle engine that polls would take a core from the others."""
    for process in tree(root):
        with suppress(psutil.NoSuchProcess):
            process.suspend()


def resume_tree(root: int) -> None:
    """Continue the tree, children first: a parent that wakes must find them running."""
    for process in reversed(tree(root)):
        with suppress(psutil.NoSuchProcess):
            process.resume()


def num_cores() -> int:
    """Return the number of cores that this process may use, and with it every worker."""
    return len(os.sched_getaffinity(0))
