"""Run tritonserver as a Python object, for tests, the demo and the benchmarks."""

from __future__ import annotations

import http.client
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from specdec.folders import default_model_repository
from specdec.health.assessment import DEFAULT_HANG_S
from specdec.launch.installation import LaunchError
from specdec.launch.server_command import (
    ServeSettings,
    check_model_repository,
    with_free_ports,
)
from specdec.launch.supervisor import STOP_GRACE_S

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self  # typing has it from 3.11 on

LOG_TAIL_LINES = 40
READY_POLL_S = 0.1
# Another process may take a chosen port before the server binds it, so other ports are tried.
PORT_ATTEMPTS = 3


class TritonServer:
    """A tritonserver started by `specdec serve`, as a context manager.

    Ports of 0, the default, are replaced by free ones. The server ends with `stop()`, with the
    context, or when this process dies in any way. Its processes run in `working_directory`, by
    default the caller's, and leave core files there. `python` runs it, by default the caller's; the
    packages of its environment are the server's.

    Attributes:
        settings: the settings of the server, with the ports that it uses.
        log_path: the server's log; `stop()` removes it unless the caller named it.
    """

    def __init__(
        self,
        model_repository: Path | str | None = None,
        *,
        http_port: int = 0,
        grpc_port: int = 0,
        metrics_port: int = 0,
        health_port: int = 0,
        inflight_limit: int = 64,
        drain_s: float = 10.0,
        hang_s: float = DEFAULT_HANG_S,
        ready_timeout_s: float = 180.0,
        log_path: Path | None = None,
        working_directory: Path | None = None,
        trace_url: str = "",
        admin_key_file: Path | None = None,
        has_openai: bool = False,
        gateway_args: tuple[str, ...] = (),
        extra_args: tuple[str, ...] = (),
        python: Path = Path(sys.executable),
    ) -> None:
        self._python = python
        self._wanted = ServeSettings(
            model_repository=Path(model_repository or default_model_repository()).resolve(),
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            health_port=health_port,
            inflight_limit=inflight_limit,
            drain_s=drain_s,
            hang_s=hang_s,
            trace_url=trace_url,
            trace_every=1,
            admin_key_file=admin_key_file,
            has_openai=has_openai,
            openai_port=0,
            gateway_args=gateway_args,
            extra_args=extra_args,
        )
        self._ready_timeout_s = ready_timeout_s
        self._directory: Path | None = None
        self._given_log_path = log_path
        self._working_directory = working_directory
        self._process: subprocess.Popen[bytes] | None = None
        self.settings = self._wanted
        self.log_path = log_path or Path(os.devnull)

    @property
    def http_url(self) -> str:
        """The HTTP endpoint as host:port; tritonclient takes no scheme."""
        return f"{self.settings.url_host}:{self.settings.http_port}"

    @property
    def grpc_url(self) -> str:
        """The gRPC endpoint as host:port."""
        return f"{self.settings.url_host}:{self.settings.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """The URL of the Prometheus metrics page."""
        return f"http://{self.settings.url_host}:{self.settings.metrics_port}/metrics"

    @property
    def health_url(self) -> str:
        """The URL at which the supervisor says whether the server can answer requests."""
        return f"http://{self.settings.url_host}:{self.settings.health_port}/health/ready"

    @property
    def openai_url(self) -> str:
        """The URL of the gateway, without a path."""
        return f"http://{self.settings.url_host}:{self.settings.openai_port}"

    @property
    def pid(self) -> int:
        """The process id of tritonserver itself. Raises LaunchError if it is not running."""
        if self._directory is None:
            raise LaunchError("the server is not running")
        return int((self._directory / "server.pid").read_text("utf-8"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until every model is ready.

        Raises LaunchError and starts nothing if the server is running, a port is taken or weights
        are missing. Raises LaunchError with the end of the log if the server ends early or is not
        ready in time.
        """
        if self._process is not None:
            raise LaunchError(f"the server runs already, on {self.http_url}")
        check_model_repository(self._wanted)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self.settings = with_free_ports(self._wanted)
            try:
                self._spawn()
                self._wait_until_ready()
            except BaseException as error:
                tail = self.log_tail()
                self.stop()
                lost_port = "already in use" in tail.lower() and 0 in self._wanted.ports.values()
                if isinstance(error, LaunchError) and lost_port and attempt < PORT_ATTEMPTS:
                    continue
                raise
            return

    def stop(self) -> int | None:
        """Stop the server and wait for its end; return its exit status, None if it did not run."""
        process, self._process = self._process, None
        status = None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(self.settings.drain_s + 2 * STOP_GRACE_S)
            # The supervisor itself hangs, so tritonserver must be killed too.
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
                with suppress(OSError, ValueError):
                    os.killpg(self.pid, signal.SIGKILL)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        return status

    def log_tail(self, num_lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the server's log."""
        with suppress(OSError):
            lines = self.log_path.read_text("utf-8", errors="replace").splitlines()
            return "\n".join(lines[-num_lines:])
        return ""

    def _spawn(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="specdec-server-"))
        self.log_path = self._given_log_path or self._directory / "server.log"
        with self.log_path.open("wb") as log:
            self._process = self._popen(log)

    def _popen(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        settings = self.settings
        command = [str(self._python), "-m", "specdec", "serve"]
        command += ["--model-repository", str(settings.model_repository)]
        for kind, port in settings.ports.items():
            command += [f"--{kind}-port", str(port)]
        command += ["--inflight-limit", str(settings.inflight_limit)]
        command += ["--drain-s", str(settings.drain_s), "--hang-s", str(settings.hang_s)]
        command += ["--trace-url", settings.trace_url, "--trace-every", str(settings.trace_every)]
        command += ["--pid-file", f"{self._directory}/server.pid"]
        command += ["--stop-with-parent", str(os.getpid())]
        if settings.admin_key_file is not None:
            command += ["--admin-key-file", str(settings.admin_key_file)]
        if settings.has_openai:
            command += ["--openai", f"--gateway-args={shlex.join(settings.gateway_args)}"]
        command += ["--", *settings.extra_args]
        # The server has its own session. So Ctrl-C reaches only the caller, which stops the server.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self._working_directory,
            start_new_session=True,
        )

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + self._ready_timeout_s
        while time.monotonic() < deadline_s:
            if self._process is not None and self._process.poll() is not None:
                raise LaunchError(
                    f"the server ended with status {self._process.returncode} before it was "
                    f"ready; the end of its log:\n{self.log_tail()}"
                )
            if is_ready(self.settings):
                return
            time.sleep(READY_POLL_S)
        raise LaunchError(
            f"the server was not ready within {self._ready_timeout_s:g} s; the end of its log:\n"
            f"{self.log_tail()}"
        )


def is_ready(settings: ServeSettings) -> bool:
    """Say whether a server can answer requests.

    The supervisor must report it as ready. The metrics port must answer too, because it opens last,
    and the gateway if there is one.
    """
    pages = [(settings.health_port, "/health/ready"), (settings.metrics_port, "/metrics")]
    if settings.has_openai:
        pages.append((settings.openai_port, "/health/ready"))
    return all(_answers(settings.reachable_host, port, path) for port, path in pages)


def _answers(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=5.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
