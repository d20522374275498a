"""A server is ready only if a token can come, and each fault is named."""

import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest

from specdec.health.assessment import assess
from specdec.health.board import Beat, Role, State
from specdec.health.processes import status_of

HANG_S = 10.0


@pytest.fixture
def process():
    """Return a process that may come to harm."""
    running = subprocess.Popen(["sleep", "60"])
    yield running
    running.kill()
    running.wait()


def identity_of(pid):
    """Return the id of a process and when it started; of one that has gone, at any time."""
    status = status_of(pid)
    return pid, status.start_ticks if status else 0


def beats(target_pid=None, draft_pid=None, **of_target):
    """Return the beats of a pair and its orchestrator, all well."""
    own, now_s = identity_of(os.getpid()), time.monotonic()
    target = identity_of(target_pid) if target_pid else own
    draft = identity_of(draft_pid) if draft_pid else own
    state = {"state": State.SERVING, "beat_s": now_s, "has_work": False} | of_target
    return [
        Beat("specdec", *own, Role.ORCHESTRATOR, ("target",), State.SERVING, now_s, False),
        Beat("target", *target, Role.ENGINE, (), **state),
        Beat("draft", *draft, Role.ENGINE, (), State.SERVING, now_s, False),
    ]


def wait_until_stopped(process):
    """Wait until the kernel says that the process is stopped."""
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_all_well_is_ready():
    """Nothing fatal, nothing degraded, nothing to wait for."""
    assessment = assess(beats(), {}, HANG_S)
    assert assessment.is_ready
    assert not assessment.degraded


def test_loading_is_waited_for_without_a_limit():
    """A model that loads is not ready, and not hung either, however long it takes."""
    old_s = time.monotonic() - 100 * HANG_S
    assessment = assess(beats(state=State.LOADING, beat_s=old_s, has_work=True), {}, HANG_S)
    assert assessment.waiting == "loading target"
    assert not assessment.fatal


def test_version_that_loads_beside_the_served_one_changes_nothing():
    """A refreshed engine is loaded while the old one answers."""
    own = identity_of(os.getpid())
    new = Beat("target", *own, Role.ENGINE, (), State.LOADING, time.monotonic(), False)
    assert assess([*beats(), new], {}, HANG_S).is_ready


def test_version_that_cannot_load_leaves_the_served_one(process):
    """Triton reports it; the process that ended while loading is no death of the server."""
    process.kill()
    process.wait()
    failed = Beat("target", process.pid, 0, Role.ENGINE, (), State.LOADING, time.monotonic(), False)
    assessment = assess([failed, *beats()], {}, HANG_S)
    assert assessment.is_ready
    assert not assessment.degraded


def test_another_process_with_the_id_of_a_dead_one_is_no_witness():
    """The kernel gives ids again: a process that started later is not the one on the board."""
    orchestrator, target, draft = beats()
    dead = replace(target, start_ticks=target.start_ticks - 1)
    assert assess([orchestrator, dead, draft], {}, HANG_S).fatal == (
        "the process of target has died"
    )


def test_death_counts_whichever_version_is_named_last(process):
    """A healthy process of the same model does not hide a dead one."""
    process.kill()
    process.wait()
    dead = beats(process.pid)[1]
    for order in ([dead, *beats()], [*beats(), dead]):
        assert assess(order, {}, HANG_S).fatal == "the process of target has died"


def test_dead_target_is_fatal_even_before_it_is_collected(process):
    """A process that was killed and not waited for has died, and so has one that is gone."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert assess(beats(process.pid), {}, HANG_S).fatal == "the process of target has died"
    process.wait()
    assert assess(beats(process.pid), {}, HANG_S).fatal == "the process of target has died"


def test_stopped_target_is_fatal(process):
    """SIGSTOP is death to those who wait."""
    process.send_signal(signal.SIGSTOP)
    wait_until_stopped(process)
    assert assess(beats(process.pid), {}, HANG_S).fatal == "the process of target is stopped"


def test_dead_draft_degrades_only(process):
    """Answers go on without it, so the server stays ready."""
    process.kill()
    process.wait()
    assessment = assess(beats(draft_pid=process.pid), {}, HANG_S)
    assert assessment.is_ready
    assert assessment.degraded == "the process of draft has died"


def test_silence_is_a_hang_only_with_work():
    """An engine that waits for work may be silent."""
    old_s = time.monotonic() - HANG_S - 1.0
    assert assess(beats(beat_s=old_s), {}, HANG_S).is_ready
    assert "target hangs" in assess(beats(beat_s=old_s, has_work=True), {}, HANG_S).fatal


def test_ended_loop_is_fatal():
    """The process lives, but its engine will never step again."""
    fatal = assess(beats(state=State.FAILED), {}, HANG_S).fatal
    assert fatal == "the loop of target has ended by an error"


def test_faults_of_models_without_a_heartbeat_count():
    """A foreign model is fatal alone, and where it is the target; else answers go on."""
    fault = {"vllm": "the process of vllm has died"}
    assert assess([], fault, HANG_S).fatal == "the process of vllm has died"
    assert assess(beats(), fault, HANG_S).degraded == "the process of vllm has died"
    orchestrator = beats()[:1]
    assert assess(orchestrator, {"target": "dead"}, HANG_S).fatal == "dead"
