"""How many requests there may be, and that one which is over does not keep an engine busy."""

import threading
import time

import pytest

from specdec.errors import (
    DeadlineExceededError,
    OverloadedError,
    RequestCancelledError,
)
from specdec.serving import flight
from specdec.serving.flight import Flight, FlightControl
from specdec.serving.tenant_shares import TenantShares

PATIENCE_S = 30.0


class Client:
    """Somebody who may hang up."""

    def __init__(self):
        self.has_gone = False
        self.num_asked = 0

    def is_cancelled(self):
        self.num_asked += 1
        return self.has_gone


class Call:
    """An engine call that counts how often it was asked to end; it may fail to be reached."""

    def __init__(self, error=None):
        self.num_aborts = 0
        self.was_aborted_twice = threading.Event()
        self._error = error

    def abort(self):
        self.num_aborts += 1
        if self.num_aborts >= 2:
            self.was_aborted_twice.set()
        if self._error:
            raise self._error


def new_flight(client=None, deadline_s=None):
    """Return a flight that starts now."""
    return Flight((client or Client()).is_cancelled, deadline_s, time.monotonic())


@pytest.fixture
def counts():
    """Return the list of in-flight counts as they were reported."""
    return []


@pytest.fixture
def control(counts):
    """Return a control for two flights that looks every millisecond."""
    running = FlightControl(TenantShares(2, 1.0), 0.001, counts.append)
    yield running
    running.close()


def test_limit_is_exact_and_places_are_given_back(control, counts):
    """As many as the limit; one more is told limit and count; a released place is free."""
    flights = [new_flight() for _ in range(3)]
    control.admit(flights[0])
    control.admit(flights[1])

    with pytest.raises(OverloadedError, match="2 requests are in flight; the limit is 2"):
        control.admit(flights[2])

    control.release(flights[0])
    control.admit(flights[2])
    assert counts == [1, 2, 1, 2]


def test_many_at_once_never_exceed_the_limit(counts):
    """Admission is one step: a crowd of threads gets exactly the places there are."""
    control = FlightControl(TenantShares(5, 1.0), 1.0, counts.append)
    start, refused = threading.Barrier(20), []

    def come():
        start.wait(PATIENCE_S)
        try:
            control.admit(new_flight())
        except OverloadedError as error:
            refused.append(error)

    threads = [threading.Thread(target=come) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    control.close()

    assert len(refused) == 15
    assert counts == [1, 2, 3, 4, 5]


def test_reason_why_a_flight_is_over():
    """Still wanted; gone; overdue, with limit and time passed in the message."""
    client = Client()
    assert new_flight(client, deadline_s=1000.0).reason_to_end() is None
    client.has_gone = True
    left = new_flight(client)
    left.poll()
    assert isinstance(left.reason_to_end(), RequestCancelledError)
    overdue = Flight(Client().is_cancelled, 0.25, time.monotonic() - 0.5)
    with pytest.raises(DeadlineExceededError, match=r"deadline_ms is 250; passed: 5\d\d ms"):
        overdue.check()


def test_calls_of_a_flight_that_is_over_are_ended_again_and_again(control):
    """A stop that overtakes its call is lost, so it is repeated; other flights are left alone."""
    leaving, staying = Client(), Client()
    flights = [new_flight(leaving), new_flight(staying)]
    calls = [Call(error=RuntimeError("engine is gone")), Call(), Call()]
    flights[0].watch(calls[0])
    flights[0].watch(calls[1])
    flights[1].watch(calls[2])
    for each in flights:
        control.admit(each)

    leaving.has_gone = True

    assert calls[0].was_aborted_twice.wait(PATIENCE_S)
    assert calls[2].num_aborts == 0


def test_request_whose_thread_waits_for_ever_is_answered_once(control, monkeypatch):
    """An engine that hangs hears no stop: after a while the client is answered without it."""
    monkeypatch.setattr(flight, "GRACE_S", 0.05)
    stuck, given_up, was_given_up = new_flight(deadline_s=0.0), [], threading.Event()
    stuck.watch(Call())

    def give_up(error):
        if control.release(stuck):
            given_up.append(error)
            was_given_up.set()

    stuck.give_up = give_up
    control.admit(stuck)

    assert was_given_up.wait(PATIENCE_S)
    assert isinstance(given_up[0], DeadlineExceededError)
    assert not control.release(stuck)


def test_nobody_asks_about_a_flight_that_has_ended(control):
    """Triton frees a request with its last response: from then on it must not be asked."""
    client = Client()
    ending = new_flight(client, deadline_s=0.0)
    control.admit(ending)

    control.release(ending)

    num_asked = client.num_asked
    ending.poll()
    assert ending.reason_to_end() is None
    assert client.num_asked == num_asked


def test_request_that_the_watchdog_has_answered_goes_no_further(control):
    """An engine that comes back finds nobody to work for."""
    answered = new_flight()
    control.admit(answered)
    answered.check()

    control.release(answered)

    with pytest.raises(RequestCancelledError, match="watchdog"):
        answered.check()
