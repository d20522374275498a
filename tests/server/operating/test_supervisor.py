"""`specdec serve` recovers from dead processes, and after a stop it leaves nothing."""

import asyncio
import http.client
import os
import signal
import subprocess
import time
from contextlib import ExitStack

import pytest

from specdec.health.board import SHARED_MEMORY
from specdec.health.processes import all_processes, environment_of, model_run_by
from specdec.launch.leftovers import BOARD_SUFFIX, remove_leftovers
from specdec.launch.server_command import REGION_PREFIX, ServeSettings, with_free_ports
from specdec.launch.supervisor import STOP_GRACE_S
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.reliability.kit.faulty_engine import with_planted_faults
from specdec.loadtest.reliability.kit.http_answers import CLOSED
from specdec.loadtest.reliability.kit.serving import serve_command
from specdec.loadtest.reliability.scenarios.deaths import (
    EXCEPTION,
    NUM_HTTP,
    TOLD_LIMIT_S,
    UNREADY_LIMIT_S,
    inject,
)
from specdec.loadtest.reliability.scenarios.stops import DRAIN_S, LONG_STREAMS, STARTING, stop_in
from tests.server.support.live import MODEL_REPOSITORY, num_inflight
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Return a server for all tests that harm its processes.

    They do it too few times for the supervisor to give up.
    """
    folder = tmp_path_factory.mktemp("deaths")
    repository = with_planted_faults(MODEL_REPOSITORY, folder)
    with TritonServer(repository, log_path=folder / "log") as server:
        yield server


# test_unsupervised.py kills the target, test_lifecycle.py kills and pauses tritonserver.
@pytest.mark.parametrize(
    ("victim", "fault", "told"),
    [
        ("target", EXCEPTION, ("engine_failed", "engine_failed")),
        ("specdec", "SIGKILL", ("UNAVAILABLE", CLOSED)),
    ],
)
def test_streams_get_an_error_and_the_server_recovers_after_a_death(running, victim, fault, told):
    """Each gRPC and HTTP stream gets its error within 3 s; the probe says no within 2 s.

    The server answers again within 60 s, and no slot stays taken.
    """
    result = asyncio.run(inject(running, victim, fault))

    over_grpc, over_http = told
    assert set(result.errors[:-NUM_HTTP]) == {over_grpc}
    assert set(result.errors[-NUM_HTTP:]) == {over_http}
    assert result.slowest_error_s < TOLD_LIMIT_S
    assert result.unready_s < UNREADY_LIMIT_S
    assert result.back_s < 60.0
    assert result.num_false_ready == 0
    wait_for(lambda: num_inflight(running) == 0)


def test_dead_draft_model_fails_no_request(running):
    """Streams go on without it; the server is restarted once no request is in flight."""
    result = asyncio.run(inject(running, "draft", "SIGKILL"))

    assert set(result.errors) == {"whole"}
    assert result.is_restarted
    assert result.back_s < 60.0
    assert result.num_false_ready == 0


def test_idle_connections_do_not_delay_a_stop(running):
    """With an open connection to each HTTP port of Triton, the server ends in 5 s without a trace.

    The supervisor's own health port closes each connection after its answer.
    """
    settings = running.settings
    supervisor = running._process.pid
    with ExitStack() as stack:
        for port, path in (
            (settings.http_port, "/v2/health/live"),
            (settings.metrics_port, "/metrics"),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            stack.callback(connection.close)
            connection.request("GET", path)
            connection.getresponse().read()
            assert connection.sock is not None, f"the server has closed that of {path}"
        start_s = time.monotonic()

        assert running.stop() == 0
        assert time.monotonic() - start_s < STOP_GRACE_S
    assert not list(SHARED_MEMORY.glob(f"{REGION_PREFIX}{supervisor}_*"))


def test_next_start_clears_what_a_killed_server_left():
    """Model processes that outlive a killed supervisor are ended, and shared memory is removed."""
    settings = with_free_ports(ServeSettings(MODEL_REPOSITORY, "127.0.0.1", 0, 0, 0, 0))
    supervisor = subprocess.Popen(serve_command(settings), stdout=subprocess.DEVNULL)
    mark = f"{REGION_PREFIX}{supervisor.pid}_"

    def draft_process():
        return next(
            (
                each.pid
                for each in all_processes()
                if model_run_by(each.pid) == "draft"
                and any(mark in entry for entry in environment_of(each.pid))
            ),
            None,
        )

    stub = wait_for(draft_process)
    wait_for(lambda: list(SHARED_MEMORY.glob(f"{mark}*{BOARD_SUFFIX}")))
    # A paused process cannot notice that its parent dies.
    os.kill(stub, signal.SIGSTOP)

    supervisor.kill()
    supervisor.wait()
    found = remove_leftovers()

    assert f"process {stub}" in found
    assert not list(SHARED_MEMORY.glob(f"{mark}*"))


@pytest.mark.parametrize(
    ("state", "limit_s", "outcomes"),
    [
        pytest.param(LONG_STREAMS, DRAIN_S + STOP_GRACE_S, {"shutting_down"}, id=LONG_STREAMS.name),
        pytest.param(STARTING, STOP_GRACE_S, set(), id=STARTING.name),
    ],
)
def test_stop_ends_in_time_and_leaves_nothing(state, limit_s, outcomes):
    """The server exits with 0 in time, every stream gets `shutting_down`, and nothing is left.

    That includes processes, shared memory and crashes in the kernel's log.
    """
    result = asyncio.run(stop_in(state, MODEL_REPOSITORY))

    assert result.status == 0
    assert result.seconds < limit_s
    assert set(result.outcomes) == outcomes
    assert result.num_open > 0 or not outcomes
    assert result.leftovers == ()
