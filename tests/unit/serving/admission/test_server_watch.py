"""Requests get an error if the target dies or hangs, and may finish before a stop."""

from __future__ import annotations

import os
import threading
import time

import pytest

from specdec.errors import EngineLostError, ShuttingDownError
from specdec.health.board import NO_HEARTBEAT, BoardHeartbeat, State, ask_to_drain, read_board
from specdec.serving.admission import server_watch
from specdec.serving.admission.server_watch import ServerWatch
from tests.waiting import wait_for

HANG_S = 0.2


class Engine:
    """A compiled engine that the watch can probe."""

    def __init__(self):
        self.answers = threading.Event()
        self.answers.set()
        self.fault = ""

    def abort(self):
        """Do nothing: no call runs."""

    def check(self):
        """Hang while `answers` is not set; raise EngineLostError if there is a `fault`."""
        self.answers.wait()
        if self.fault:
            raise EngineLostError(self.fault)


class Requests:
    """Requests in flight; `target` is None if there are none."""

    def __init__(self, target):
        self.target = target
        self.errors = []

    @property
    def num_inflight(self):
        return int(self.target is not None)

    def any_target(self):
        """Return the target of a request in flight, or None."""
        return self.target

    def fail_all(self, error):
        """End the requests and keep the error."""
        if self.target is not None:
            self.errors.append(error)
        self.target = None


@pytest.fixture
def engine():
    """Return an engine; after the test it answers, so that no probe's thread stays."""
    engine = Engine()
    yield engine
    engine.answers.set()


@pytest.fixture
def start(engine, tmp_path, monkeypatch):
    """Return a function that starts the watch over the engine, with one request in flight."""
    monkeypatch.setattr(server_watch, "PROBE_PERIOD_S", 0.02)
    watches = []

    # Never the real `os.kill`: the parent of this process is pytest itself, or a shell.
    def start(
        pulse=NO_HEARTBEAT,
        flush=lambda: None,
        *,
        exits_on_dead_engine=False,
        kill=lambda *_: None,
    ):
        requests = Requests(engine)
        watch = ServerWatch(
            requests,
            "target",
            tmp_path / "board",
            pulse,
            HANG_S,
            flush,
            lambda _: None,
            exits_on_dead_engine=exits_on_dead_engine,
            kill=kill,
        )
        watches.append(watch)
        return requests, watch

    yield start
    for each in watches:
        each.close()


def is_refused(watch):
    """Return whether a new request is refused."""
    try:
        watch.check_admission()
    except (EngineLostError, ShuttingDownError):
        return True
    return False


@pytest.fixture
def pulse(tmp_path):
    """Return the heartbeat writer of the orchestrator."""
    pulse = BoardHeartbeat("specdec", directory=tmp_path / "board")
    yield pulse
    pulse.close()


def test_requests_are_refused_while_an_engine_hangs(engine, start):
    """Running requests get an error, and later ones too, until the engine answers again."""
    requests, watch = start()
    engine.answers.clear()
    wait_for(lambda: requests.errors)
    wait_for(lambda: is_refused(watch))

    engine.answers.set()

    wait_for(lambda: not is_refused(watch))


def test_engine_that_is_loaded_again_is_used_again(engine, start):
    """The engine is probed even while all requests are refused, so that none is in flight."""
    engine.fault = "target: its process has died"
    requests, watch = start()
    wait_for(lambda: is_refused(watch))
    assert "its process has died" in str(requests.errors[0])

    engine.fault = ""

    wait_for(lambda: not is_refused(watch))


def test_stop_waits_for_running_requests_and_then_writes_state(start, pulse, tmp_path):
    """New requests are refused at once; the state is written when the last one has ended."""
    flushes = []
    requests, watch = start(pulse, lambda: flushes.append(requests.target))
    ask_to_drain(tmp_path / "board", time.monotonic() + 60.0)
    wait_for(lambda: is_refused(watch))
    time.sleep(0.3)
    assert flushes == []

    requests.target = None

    wait_for(lambda: flushes == [None])
    wait_for(lambda: [each.state for each in read_board(tmp_path / "board")] == [State.DRAINED])
    assert requests.errors == []


def test_request_that_outlasts_the_drain_gets_an_error(start, pulse, tmp_path):
    """It ends with `shutting_down`, before the state is written."""
    flushes = []
    requests, _ = start(pulse, lambda: flushes.append(list(requests.errors)))

    ask_to_drain(tmp_path / "board", time.monotonic() + 0.2)

    wait_for(lambda: flushes)
    assert [[each.error_type for each in errors] for errors in flushes] == [["shutting_down"]]


def test_exit_sends_every_error_first(engine, start, monkeypatch):
    """Errors leave the outbox before tritonserver, the parent process, is killed."""
    events = []
    monkeypatch.setattr(server_watch, "SETTLE_S", 0.0)
    requests, _ = start(
        flush=lambda: events.append(("flush", len(requests.errors))),
        exits_on_dead_engine=True,
        kill=lambda pid, _: events.append(("kill", pid)),
    )

    engine.fault = "target: its process has died"

    wait_for(lambda: len(events) >= 2)
    assert events[:2] == [("flush", 1), ("kill", os.getppid())]


def test_exit_does_not_wait_for_a_disk_that_hangs(engine, start, monkeypatch):
    """A server with a dead engine must end even if its state cannot be written."""
    killed, hangs = threading.Event(), threading.Event()
    monkeypatch.setattr(server_watch, "SETTLE_S", 0.0)
    monkeypatch.setattr(server_watch, "FLUSH_S", 0.1)
    start(flush=hangs.wait, exits_on_dead_engine=True, kill=lambda *_: killed.set())

    engine.fault = "target: its process has died"

    assert killed.wait(20.0)
    hangs.set()


def test_watch_that_is_closed_kills_no_server(engine, start, monkeypatch):
    """When the model is unloaded, a fault of its engine must not end the others' server."""
    killed, flushing, goes_on = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(server_watch, "SETTLE_S", 0.0)

    def flush():
        flushing.set()
        goes_on.wait(20.0)

    _, watch = start(flush=flush, exits_on_dead_engine=True, kill=lambda *_: killed.set())
    engine.fault = "target: its process has died"
    assert flushing.wait(20.0)
    watch._closing.set()
    goes_on.set()
    assert not killed.wait(0.3)
