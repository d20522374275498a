"""A server is ready only if it can answer requests, and each fault is named."""

import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest

from specdec.health.assessment import PAUSE_S, STOPPED_S, Watch
from specdec.health.board import Beat, Role, State
from specdec.health.processes import status_of

HANG_S = 10.0


class Clock:
    """A clock that the test moves; it starts a minute before now."""

    def __init__(self):
        self.now_s = time.monotonic() - 60.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    """Return a clock that starts a minute before now."""
    return Clock()


@pytest.fixture
def watch(clock):
    """Return a watch that has looked once a second for a minute."""
    watch = Watch(HANG_S, clock)
    for _ in range(60):
        clock.now_s += 1.0
        watch.look()
    return watch


@pytest.fixture
def process():
    """Return a process that the test may stop or kill."""
    running = subprocess.Popen(["sleep", "60"])
    yield running
    running.kill()
    running.wait()


def identity_of(pid):
    """Return the id of a process and its start time in clock ticks, 0 if it is gone."""
    status = status_of(pid)
    return pid, status.start_ticks if status else 0


def beats(target_pid=None, draft_pid=None, **of_target):
    """Return the heartbeats of orchestrator, target and draft model, without any fault.

    Models without a given id are in this process; `of_target` changes the target's heartbeat.
    """
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
    """Wait until the kernel reports that the process is stopped."""
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_server_without_faults_is_ready(watch):
    """There is nothing fatal, nothing degraded and nothing to wait for."""
    assessment = watch.assess(beats(), {})
    assert assessment.is_ready
    assert not assessment.degraded


def test_loading_is_waited_for_without_a_limit(watch):
    """A model that loads is not ready, and not hung either, however long it takes."""
    old_s = time.monotonic() - 100 * HANG_S
    assessment = watch.assess(beats(state=State.LOADING, beat_s=old_s, has_work=True), {})
    assert assessment.waiting == "loading target"
    assert not assessment.fatal


def test_version_that_loads_beside_the_served_one_changes_nothing(watch):
    """The old version answers while a refreshed engine loads."""
    own = identity_of(os.getpid())
    new = Beat("target", *own, Role.ENGINE, (), State.LOADING, time.monotonic(), False)
    assert watch.assess([*beats(), new], {}).is_ready


def test_version_that_cannot_load_leaves_the_served_one(process, watch):
    """Triton reports the failure; a process that ended while loading is no fault of the server."""
    process.kill()
    process.wait()
    failed = Beat("target", process.pid, 0, Role.ENGINE, (), State.LOADING, time.monotonic(), False)
    assessment = watch.assess([failed, *beats()], {})
    assert assessment.is_ready
    assert not assessment.degraded


def test_later_process_with_the_same_id_does_not_hide_a_death(watch):
    """The kernel uses ids again; a process that started later is not the one on the board."""
    orchestrator, target, draft = beats()
    dead = replace(target, start_ticks=target.start_ticks - 1)
    assert watch.assess([orchestrator, dead, draft], {}).fatal == ("the process of target has died")


def test_death_counts_in_any_order_of_the_versions(process, watch):
    """A healthy process of the same model does not hide a dead one."""
    process.kill()
    process.wait()
    dead = beats(process.pid)[1]
    for order in ([dead, *beats()], [*beats(), dead]):
        assert watch.assess(order, {}).fatal == "the process of target has died"


def test_dead_target_is_fatal_even_before_it_is_waited_for(process, watch):
    """A killed process counts as dead before its parent has waited for it, and after that."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert watch.assess(beats(process.pid), {}).fatal == "the process of target has died"
    process.wait()
    assert watch.assess(beats(process.pid), {}).fatal == "the process of target has died"


def test_target_that_stays_stopped_is_fatal(process, watch, clock):
    """To waiting clients SIGSTOP is like a death; a debugger stops a process only for a moment."""
    process.send_signal(signal.SIGSTOP)
    wait_until_stopped(process)
    for after_s, fatal in ((0.0, ""), (STOPPED_S + 0.1, "the process of target is stopped")):
        clock.now_s += after_s
        watch.look()
        assert watch.assess(beats(process.pid), {}).fatal == fatal


def test_stops_for_a_moment_do_not_add_up(process, watch, clock):
    """A profiler that stops a process again and again does no harm."""
    for _ in range(5):
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process)
        assert not watch.assess(beats(process.pid), {}).fatal
        process.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)
        assert not watch.assess(beats(process.pid), {}).fatal
        clock.now_s += STOPPED_S
        watch.look()


def test_dead_draft_model_only_degrades_the_server(process, watch):
    """Answers come without it, so the server stays ready."""
    process.kill()
    process.wait()
    assessment = watch.assess(beats(draft_pid=process.pid), {})
    assert assessment.is_ready
    assert assessment.degraded == "the process of draft has died"


def test_silence_is_a_hang_with_work_and_without(watch):
    """Idle loops send heartbeats too: one that is stuck would not take the next request."""
    old_s = time.monotonic() - HANG_S - 1.0
    assert watch.assess(beats(beat_s=old_s + 2.0), {}).is_ready
    for has_work in (False, True):
        fatal = watch.assess(beats(beat_s=old_s, has_work=has_work), {}).fatal
        assert "target hangs: no heartbeat for 11." in fatal


def test_pause_of_the_whole_machine_is_no_hang(watch, clock):
    """No process could send heartbeats while paused, so each has the whole limit again."""
    paused = beats()
    clock.now_s += 100.0
    watch.look()
    assert watch.assess(paused, {}).is_ready
    for _ in range(int(HANG_S / PAUSE_S) + 1):
        clock.now_s += PAUSE_S
        watch.look()
    assert "target hangs" in watch.assess(paused, {}).fatal


def test_server_waits_for_a_needed_model_that_was_unloaded(watch):
    """Triton calls such a server ready; a draft model is not needed."""
    orchestrator, target, draft = beats()
    assert watch.assess([orchestrator, target, draft], {}).is_ready
    assert watch.assess([orchestrator, draft], {}).waiting == "target: not loaded"
    assert watch.assess([target, draft], {}).waiting == "specdec: not loaded"
    assert watch.assess([orchestrator, target], {}).is_ready


def test_server_does_not_wait_for_a_target_without_heartbeats(watch):
    """Compiled engines are never on the board."""
    assert watch.assess(beats()[:1], {}).is_ready


def test_ended_loop_is_fatal(watch):
    """The process lives, but its engine will never step again."""
    fatal = watch.assess(beats(state=State.FAILED), {}).fatal
    assert fatal == "the loop of target has ended by an error"


def test_faults_of_models_without_a_heartbeat_count(watch):
    """Such a fault is fatal without an orchestrator, and in the target; else answers go on."""
    fault = {"vllm": "the process of vllm has died"}
    assert watch.assess([], fault).fatal == "the process of vllm has died"
    assert watch.assess(beats(), fault).degraded == "the process of vllm has died"
    orchestrator = beats()[:1]
    assert watch.assess(orchestrator, {"target": "dead"}).fatal == "dead"
