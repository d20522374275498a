"""vLLM's OpenAI server, and a client that streams from it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import urllib3

from specdec.loadtest.lab.peers.protocol import Answer, PeerError, Question, Reply, without_end
from specdec.loadtest.lab.peers.worker import num_cores
from specdec.loadtest.lab.peers.workers.loop import end_with_parent

START_TIMEOUT_S = 300.0
READ_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
MODEL = "target"
READ_BYTES = 2**16


class VllmServer:
    """One server of vLLM. Idle, its processes take 1 % of a core."""

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        end_id: int,
        log_path: Path,
    ) -> None:
        """Prepare a server. `command` lacks only its address; `environment` adds variables."""
        self._command = command
        self._environment = {**os.environ, "OMP_NUM_THREADS": str(num_cores()), **environment}
        self._end_id = end_id
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._pool = urllib3.PoolManager(maxsize=64, retries=False)
        self._url = ""

    def start(self) -> str:
        """Start the server and return its version. Raises PeerError if it does not start."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, "--host", "127.0.0.1", "--port", str(port)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._log_path.parent,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509  it only calls prctl
            )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            with suppress(urllib3.exceptions.HTTPError):
                if self._pool.request("GET", f"{self._url}/health").status == 200:
                    found = self._pool.request("GET", f"{self._url}/version").json()
                    return f"vLLM {found['version']}"
            time.sleep(0.5)
        raise PeerError(f"vLLM's server did not start; log in {self._log_path.name}")

    def ask(self, question: Question) -> Reply:
        """Stream all prompts at once, timed by the client. Raises PeerError if a request fails."""
        # The server may have closed idle connections.
        self._pool.clear()
        with ThreadPoolExecutor(len(question.prompts)) as pool:
            start_s = time.perf_counter()
            try:
                answers = tuple(
                    pool.map(lambda ids: self._answer(ids, question.max_tokens), question.prompts)
                )
            except urllib3.exceptions.HTTPError as error:
                raise PeerError(f"vLLM's server: {type(error).__name__}") from error
            seconds = time.perf_counter() - start_s
        return Reply(answers, seconds)

    def pause(self) -> None:
        """Do nothing: after a pause, vLLM's first answer may take a second longer."""

    def resume(self) -> None:
        """Do nothing: the server was not paused."""

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _answer(self, ids: tuple[int, ...], max_tokens: int) -> Answer:
        request = {
            "model": MODEL,
            "prompt": list(ids),
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "stop_token_ids": [self._end_id],
            "stream": True,
            "return_token_ids": True,
        }
        sent_s = time.perf_counter()
        response = self._pool.request(
            "POST",
            f"{self._url}/v1/completions",
            json=request,
            preload_content=False,
            timeout=READ_TIMEOUT_S,
        )
        tokens: list[int] = []
        first_s = 0.0
        for event in events_in(response.stream(READ_BYTES)):
            for choice in event.get("choices", ()):
                tokens += choice.get("token_ids") or ()
            first_s = first_s or time.perf_counter() - sent_s
        response.release_conn()
        if not tokens:
            raise PeerError(f"vLLM's server sent no tokens; status {response.status}")
        return Answer(without_end(tokens, self._end_id), first_s)


def events_in(parts: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of server-sent events, from the parts of a body."""
    unread = b""
    for part in parts:
        *lines, unread = (unread + part).split(b"\n")
        for line in lines:
            content = line.removeprefix(b"data: ").strip()
            if content and content != b"[DONE]":
                yield json.loads(content)
