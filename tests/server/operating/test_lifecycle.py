"""A supervised server with a tiny model starts, answers, stops, and leaves nothing."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from specdec.launch.installation import LaunchError
from specdec.launch.server_command import REGION_PREFIX
from specdec.launch.triton_server import TritonServer, is_ready
from tests.server.support.live import ask_http
from tests.waiting import wait_for

CONFIGURATION = """
backend: "python"
max_batch_size: 0
input [{ name: "text_input" data_type: TYPE_STRING dims: [1] }]
output [{ name: "text_output" data_type: TYPE_STRING dims: [1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
MODEL = """
import sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        prefix = pb_utils.Tensor("text_output", np.array([sys.prefix.encode()], dtype=object))
        return [pb_utils.InferenceResponse([prefix]) for _ in requests]
"""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the Python backend puts its regions


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a repository with a model that answers with the `sys.prefix` of its Python.

    Temporary files go to tmp_path / "scratch".
    """
    version = tmp_path / "repository" / "prefix" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(CONFIGURATION)
    (version / "model.py").write_text(MODEL)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    return tmp_path / "repository"


def regions(supervisor_pid):
    """Return the names of the shared-memory regions of this supervisor's server."""
    return [path.name for path in SHARED_MEMORY.glob(f"{REGION_PREFIX}{supervisor_pid}_*")]


def is_gone(pid):
    """Return whether no process has this id."""
    return not Path(f"/proc/{pid}").exists()


def parent_of(pid):
    """Return the id of the parent process; a tritonserver's parent is its supervisor."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_models_run_in_our_environment_and_a_stop_leaves_nothing(repository, tmp_path):
    """Models run in this virtual environment.

    After the stop, no process, temporary file or shared-memory region is left.
    """
    with TritonServer(repository) as server:
        pid = server.pid
        supervisor_pid = parent_of(pid)
        body = json.dumps({"text_input": "x"}).encode()
        url = f"http://{server.http_url}/v2/models/prefix/generate"
        with urllib.request.urlopen(urllib.request.Request(url, body)) as response:
            assert json.load(response)["text_output"] == sys.prefix
        assert regions(supervisor_pid)

    assert is_gone(pid)
    assert not regions(supervisor_pid)
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_or_paused_server_is_started_again(repository, fault):
    """The supervisor starts another tritonserver on the same ports.

    Shared memory of the old one is removed.
    """
    server = TritonServer(repository)
    server.start()
    pid = server.pid
    supervisor_pid = parent_of(pid)

    os.kill(pid, fault)

    assert wait_for(lambda: is_gone(pid))
    assert wait_for(lambda: is_ready(server.settings))
    assert server.pid != pid
    assert len({name.rpartition("_")[0] for name in regions(supervisor_pid)}) == 1
    assert server.stop() == 0
    assert not regions(supervisor_pid)


def test_killed_supervisor_takes_the_server_along(repository):
    """If the supervisor is killed, tritonserver ends as well."""
    server = TritonServer(repository)
    server.start()
    pid = server.pid

    os.kill(parent_of(pid), signal.SIGKILL)

    assert wait_for(lambda: is_gone(pid))
    server.stop()


def test_interrupted_serve_command_exits_0(repository, tmp_path):
    """Ctrl-C on `specdec serve` stops tritonserver in good order; the command exits with 0.

    The file with the process id is removed.
    """
    ports = [f"--{kind}-port=0" for kind in ("http", "grpc", "metrics", "health")]
    pid_file = tmp_path / "pid"
    command = [sys.executable, "-m", "specdec", "serve", "--model-repository", str(repository)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *ports, "--pid-file", str(pid_file)], stdout=log, stderr=log
        )
    assert wait_for(lambda: b"Started Metrics Service" in (tmp_path / "log").read_bytes())
    pid = int(pid_file.read_text())

    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 0
    assert is_gone(pid)
    assert not pid_file.exists()


def test_model_that_cannot_load_fails_the_start(repository):
    """A broken model makes the start fail with the server's own message, not at a time limit."""
    (repository / "prefix" / "1" / "model.py").write_text("raise RuntimeError('broken on purpose')")

    with pytest.raises(LaunchError, match="broken on purpose"):
        TritonServer(repository).start()


def test_own_restriction_of_one_api_leaves_the_others_closed(repository):
    """If a user restricts one API with a key of theirs, our restriction of the others remains."""
    own = ("--http-restricted-api=trace:their-key=1",)
    with TritonServer(repository, extra_args=own) as server:
        statuses = {
            path: ask_http(
                method, f"http://{server.http_url}/v2/{path}", headers={"their-key": "1"}
            ).status
            for method, path in (
                ("GET", "trace/setting"),
                ("GET", "logging"),
                ("GET", "systemsharedmemory/status"),
                ("POST", "repository/models/prefix/load"),
            )
        }
    assert statuses.pop("trace/setting") == 200
    assert set(statuses.values()) == {403}
