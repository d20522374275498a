"""Requests are told of an engine that dies or hangs, and a stop drains them."""

from __future__ import annotations

import os
import threading
import time

import pytest

from specdec.errors import EngineLostError, ShuttingDownError
from specdec.health.board import NO_PULSE, Pulse, State, ask_to_drain, read_board
from specdec.serving import server_watch
from specdec.serving.server_watch import ServerWatch
from tests.waiting import wait_for

HANG_S = 0.2


class Engine:
    """A compiled engine, as the watch asks it."""

    def __init__(self):
        self.answers = threading.Event()
        self.answers.set()
        self.fault = ""

    def abort(self):
        """Do nothing: no call runs."""

    def check(self):
        """Hang while `answers` is not set."""
        self.answers.wait()
        if self.fault:
            raise EngineLostError(self.fault)


class Flights:
    """Requests in flight: `target` while there are any."""

    def __init__(self, target):
        self.target = target
        self.errors = []

    @property
    def num_inflight(self):
        return int(self.target is not None)

    def any_target(self):
        """Return the target as a request calls it."""
        return self.target

    def fail_all(self, error):
        """End the requests."""
        if self.target is not None:
            self.errors.append(error)
        self.target = None


@pytest.fixture
def engine():
    """Return an engine; it answers in the end, so that no thread stays."""
    engine = Engine()
    yield engine
    engine.answers.set()


@pytest.fixture
def start(engine, tmp_path, monkeypatch):
    """Return a function that watches the engine under one request."""
    monkeypatch.setattr(server_watch, "PROBE_PERIOD_S", 0.02)
    watches = []

    def start(pulse=NO_PULSE, flush=lambda: None, *, exits_on_dead_engine=False):
        flights = Flights(engine)
        watch = ServerWatch(
            flights,
            "target",
            tmp_path / "board",
            pulse,
            HANG_S,
            flush,
            lambda _: None,
            exits_on_dead_engine=exits_on_dead_engine,
        )
        watches.append(watch)
        return flights, watch

    yield start
    for each in watches:
        each.close()


def is_refused(watch):
    """Say whether a new request is refused."""
    try:
        watch.check_admission()
    except (EngineLostError, ShuttingDownError):
        return True
    return False


@pytest.fixture
def pulse(tmp_path):
    """Return the heartbeat of the orchestrator."""
    pulse = Pulse("specdec", directory=tmp_path / "board")
    yield pulse
    pulse.close()


def test_requests_are_refused_while_an_engine_hangs(engine, start):
    """Those that run get an error, later ones too, until the engine answers again."""
    flights, watch = start()
    engine.answers.clear()
    wait_for(lambda: flights.errors)
    wait_for(lambda: is_refused(watch))

    engine.answers.set()

    wait_for(lambda: not is_refused(watch))


def test_engine_that_is_loaded_again_is_used_again(engine, start):
    """No request is in flight while all are refused: the engine is asked all the same."""
    engine.fault = "target: its process has died"
    flights, watch = start()
    wait_for(lambda: is_refused(watch))
    assert "its process has died" in str(flights.errors[0])

    engine.fault = ""

    wait_for(lambda: not is_refused(watch))


def test_stop_waits_for_running_requests_and_then_writes(start, pulse, tmp_path):
    """New requests are refused at once; state is written when the last one has ended."""
    flushes = []
    flights, watch = start(pulse, lambda: flushes.append(flights.target))
    ask_to_drain(tmp_path / "board", time.monotonic() + 60.0)
    wait_for(lambda: is_refused(watch))
    time.sleep(0.3)
    assert flushes == []

    flights.target = None

    wait_for(lambda: flushes == [None])
    wait_for(lambda: [each.state for each in read_board(tmp_path / "board")] == [State.DRAINED])
    assert flights.errors == []


def test_request_that_outlasts_the_drain_is_told(start, pulse, tmp_path):
    """It ends as shutting_down, before the state is written."""
    flushes = []
    flights, _ = start(pulse, lambda: flushes.append(list(flights.errors)))

    ask_to_drain(tmp_path / "board", time.monotonic() + 0.2)

    wait_for(lambda: flushes)
    assert [[each.error_type for each in told] for told in flushes] == [["shutting_down"]]


def test_exit_sends_every_error_first(engine, start, monkeypatch):
    """The errors leave the outbox before tritonserver is killed, and only our own is killed."""
    events = []
    monkeypatch.setattr(server_watch, "SETTLE_S", 0.0)
    monkeypatch.setattr(server_watch.os, "kill", lambda pid, _: events.append(("kill", pid)))
    flights, _ = start(
        flush=lambda: events.append(("flush", len(flights.errors))), exits_on_dead_engine=True
    )

    engine.fault = "target: its process has died"

    wait_for(lambda: len(events) >= 2)
    assert events[:2] == [("flush", 1), ("kill", os.getppid())]


def test_exit_does_not_wait_for_a_disk_that_hangs(engine, start, monkeypatch):
    """A server with a dead engine must not live on because its state cannot be written."""
    killed, hangs = threading.Event(), threading.Event()
    monkeypatch.setattr(server_watch, "SETTLE_S", 0.0)
    monkeypatch.setattr(server_watch, "FLUSH_S", 0.1)
    monkeypatch.setattr(server_watch.os, "kill", lambda *_: killed.set())
    start(flush=hangs.wait, exits_on_dead_engine=True)

    engine.fault = "target: its process has died"

    assert killed.wait(20.0)
    hangs.set()
