"""Under plain tritonserver, without `specdec serve`, requests to a dead engine fail at once.

If configured so, the server then ends.
"""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
import urllib3

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError, collect
from specdec.health.board import UNSUPERVISED_PREFIX
from specdec.launch.installation import (
    assemble_backend_directory,
    find_installation,
    server_environment,
)
from specdec.launch.leftovers import remove_shared_memory
from specdec.launch.server_command import ServeSettings, server_command, with_free_ports
from specdec.loadtest.reliability.scenarios.deaths import TOLD_LIMIT_S, process_of
from tests.server.support.live import ask_http, copy_repository
from tests.server.support.prompts import COUNT
from tests.waiting import PATIENCE_S, wait_for

LONG = GenerationRequest(text_input=COUNT, max_tokens=3000, min_tokens=2900)
PREFIX = f"specdec_{os.getpid()}_plain_"


class PlainServer:
    """A tritonserver without a supervisor: its process and its URLs."""

    def __init__(self, process, settings):
        self.process, self.pid = process, process.pid
        self.grpc_url = f"127.0.0.1:{settings.grpc_port}"
        self.ready_url = f"http://127.0.0.1:{settings.http_port}/v2/health/ready"


@contextmanager
def plain_server(directory, **parameters):
    """Start tritonserver without our launcher while the block runs, and kill it afterwards.

    `parameters` are set in the configuration of `specdec`.
    """
    repository = copy_repository(directory, **parameters)
    settings = with_free_ports(ServeSettings(repository, "127.0.0.1", 0, 0, 0, 0))
    installation = find_installation()
    backends = None
    if installation.wheel_directory is not None:
        backends = assemble_backend_directory(installation, directory)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            server_command(settings, installation, backends, PREFIX),
            env=server_environment(installation),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = PlainServer(process, settings)
    try:
        wait_for(lambda: is_ready(server), PATIENCE_S)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        remove_shared_memory(PREFIX)
        remove_shared_memory(f"{UNSUPERVISED_PREFIX}{process.pid}")


def is_ready(server):
    """Return whether Triton reports that it is ready."""
    try:
        return ask_http("GET", server.ready_url, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def errors_after_death(server):
    """Kill the target during four requests.

    Return the set of their error types, and the seconds from the kill to the last error.
    """

    def end_of(chunks):
        with pytest.raises(SpecdecError) as caught:
            collect(chunks)
        return caught.value, time.monotonic()

    with (
        GrpcClient(server.grpc_url, timeout_s=PATIENCE_S) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        streams = [client.stream(LONG) for _ in range(4)]
        # The first chunk shows that a request has reached the target.
        for chunks in streams:
            next(chunks)
        killed_s = time.monotonic()
        os.kill(process_of(server, "target"), signal.SIGKILL)
        ends = list(pool.map(end_of, streams))
    return {error.error_type for error, _ in ends}, max(end_s for _, end_s in ends) - killed_s


def test_running_and_new_requests_get_an_error_from_a_dead_engine(tmp_path):
    """All requests get `engine_failed` within 3 s, and the server goes on running."""
    with plain_server(tmp_path) as server:
        kinds, seconds = errors_after_death(server)
        assert kinds == {"engine_failed"}
        assert seconds < TOLD_LIMIT_S
        with GrpcClient(server.grpc_url, timeout_s=PATIENCE_S) as client:
            start_s = time.monotonic()
            with pytest.raises(SpecdecError) as caught:
                client.generate(LONG)
            assert caught.value.error_type == "engine_failed"
            assert time.monotonic() - start_s < TOLD_LIMIT_S
        assert server.process.poll() is None


def test_exit_on_dead_engine_ends_the_server(tmp_path):
    """Running requests get their error first; then tritonserver is killed.

    Whatever started it can start it again.
    """
    with plain_server(tmp_path, exit_on_dead_engine="true") as server:
        kinds, seconds = errors_after_death(server)
        assert kinds == {"engine_failed"}
        assert seconds < TOLD_LIMIT_S
        assert server.process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
