"""`specdec serve` with the default pair: deaths are told and mended, stops leave nothing."""

import asyncio
import os
import signal

import pytest

from loadtest.reliability.deaths import (
    EXCEPTION,
    NUM_HTTP,
    TOLD_LIMIT_S,
    UNREADY_LIMIT_S,
    inject,
    process_of,
)
from loadtest.reliability.faulty_engine import with_planted_faults
from loadtest.reliability.http_answers import CLOSED
from loadtest.reliability.stops import DRAIN_S, stop_in
from specdec.health.board import SHARED_MEMORY
from specdec.serving.launcher import TritonServer
from specdec.serving.leftovers import remove_leftovers
from specdec.serving.server_command import REGION_PREFIX
from specdec.serving.supervisor import STOP_GRACE_S
from tests.server.live import (
    MODEL_REPOSITORY,
    num_inflight,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.engines("torch")  # NVIDIA's engine dies with the whole server


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Return a server whose processes may come to harm, fewer times than it gives up after."""
    folder = tmp_path_factory.mktemp("deaths")
    repository = with_planted_faults(MODEL_REPOSITORY, folder)
    with TritonServer(repository, log_path=folder / "log") as server:
        yield server


# test_unsupervised.py kills the target, test_lifecycle.py kills and stops tritonserver.
@pytest.mark.parametrize(
    ("victim", "fault", "told"),
    [
        ("target", EXCEPTION, ("engine_failed", "engine_failed")),
        ("specdec", "SIGKILL", ("UNAVAILABLE", CLOSED)),
    ],
)
def test_death_is_told_and_mended(running, victim, fault, told):
    """Each gRPC and HTTP stream gets its error, the probe says no at once, answers come again."""
    result = asyncio.run(inject(running, victim, fault))

    over_grpc, over_http = told
    assert set(result.errors[:-NUM_HTTP]) == {over_grpc}
    assert set(result.errors[-NUM_HTTP:]) == {over_http}
    assert result.slowest_error_s < TOLD_LIMIT_S
    assert result.unready_s < UNREADY_LIMIT_S
    assert result.back_s < 60.0
    assert result.num_false_ready == 0
    wait_for(lambda: num_inflight(running) == 0)


def test_dead_draft_fails_nobody(running):
    """Streams go on without it; the server is started again when nothing is in flight."""
    result = asyncio.run(inject(running, "draft", "SIGKILL"))

    assert set(result.errors) == {"whole"}
    assert result.is_restarted
    assert result.back_s < 60.0
    assert result.num_false_ready == 0


def test_next_start_clears_what_a_killed_server_left(running):
    """Model processes that outlive a killed supervisor, and their shared memory, go."""
    stub, supervisor = process_of(running, "draft"), running._process
    os.kill(stub, signal.SIGSTOP)  # cannot notice that its parent dies

    supervisor.kill()
    supervisor.wait()
    found = remove_leftovers()
    running.stop()

    assert f"process {stub}" in found
    assert not list(SHARED_MEMORY.glob(f"{REGION_PREFIX}{supervisor.pid}_*"))


@pytest.mark.parametrize(
    ("situation", "limit_s", "outcomes"),
    [
        ("streams longer than the drain limit", DRAIN_S + STOP_GRACE_S, {"shutting_down"}),
        ("during start-up", STOP_GRACE_S, set()),
    ],
)
def test_stop_ends_in_time_and_leaves_nothing(situation, limit_s, outcomes):
    """Exit status 0, every stream told, no process, no shared memory, no crash."""
    result = asyncio.run(stop_in(situation, MODEL_REPOSITORY))

    assert result.status == 0
    assert result.seconds < limit_s
    assert set(result.outcomes) == outcomes
    assert result.num_open > 0 or not outcomes
    assert result.leftovers == ()
