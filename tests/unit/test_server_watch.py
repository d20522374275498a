"""Requests hear of an engine without a heartbeat that has died or hangs, and of its return."""

from __future__ import annotations

import threading
import time

import pytest

from specdec.errors import EngineLostError
from specdec.health.board import NO_PULSE
from specdec.serving import server_watch
from specdec.serving.server_watch import ServerWatch

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

    def start():
        flights = Flights(engine)
        watch = ServerWatch(
            flights,
            "target",
            tmp_path / "no board",
            NO_PULSE,
            HANG_S,
            lambda: None,
            lambda _: None,
            exits_on_dead_engine=False,
        )
        watches.append(watch)
        return flights, watch

    yield start
    for each in watches:
        each.close()


def wait_for(condition):
    """Wait until `condition()` holds."""
    limit_s = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < limit_s
        time.sleep(0.01)


def is_refused(watch):
    """Say whether a new request is refused."""
    try:
        watch.check_admission()
    except EngineLostError:
        return True
    return False


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
