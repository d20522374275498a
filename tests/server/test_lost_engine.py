"""An engine that dies: every client hears of it, and no place stays taken."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from clients import GenerationRequest, GrpcClient, SpecdecError
from loadtest.reliability.deaths import process_of
from specdec.serving.launcher import TritonServer
from tests.server.live import MODEL_REPOSITORY, num_inflight, wait_for
from tests.server.prompts import COUNT

pytestmark = pytest.mark.engines("torch")  # NVIDIA's engine dies with the whole server

LONG = {"text_input": COUNT, "max_tokens": 3000, "min_tokens": 2900}
WAYS = ({"drafter": "none"}, {"drafter": "lookup"}, {"drafter": "draft"}, {})
WITHIN_S = 20.0
"""About four on an idle machine."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Return a server whose engines may come to harm."""
    log = tmp_path_factory.mktemp("lost") / "server.log"
    with TritonServer(MODEL_REPOSITORY, log_path=log) as server:
        yield server


def test_whoever_waits_for_a_dead_engine_is_told(running):
    """Triton leaves their calls unanswered for ever. Later requests are told so at once."""

    def ask(way):
        with pytest.raises(SpecdecError) as caught:
            client.generate(GenerationRequest(**LONG, **way))
        return caught.value

    with (
        GrpcClient(running.grpc_url, timeout_s=3 * WITHIN_S) as client,
        ThreadPoolExecutor(len(WAYS)) as pool,
    ):
        waiting = [pool.submit(ask, way) for way in WAYS]
        wait_for(lambda: num_inflight(running) == len(WAYS))
        time.sleep(1.0)  # until they are under way

        os.kill(process_of(running, "target"), signal.SIGKILL)

        errors = [each.result(WITHIN_S) for each in waiting]
        errors.append(ask({}))
    assert {each.error_type for each in errors} == {"engine_failed"}
    assert {each.status for each in errors} == {"UNAVAILABLE"}
    wait_for(lambda: num_inflight(running) == 0, WITHIN_S)
