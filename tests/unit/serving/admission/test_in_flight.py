"""Tests of admission, its limit, and the watchdog that ends requests and their engine calls."""

import threading
import time
from types import SimpleNamespace

import pytest

from specdec.errors import (
    DeadlineExceededError,
    OverloadedError,
    RequestCancelledError,
)
from specdec.serving.admission import in_flight
from specdec.serving.admission.in_flight import RequestInFlight, RequestsInFlight
from specdec.serving.admission.tenant_shares import TenantShares

LIMIT_S = 30.0


class Client:
    """A client that may leave; it counts how often Triton is asked about it."""

    def __init__(self):
        self.has_gone = False
        self.num_asked = 0

    def is_cancelled(self):
        self.num_asked += 1
        return self.has_gone


class Call:
    """An engine call that counts its aborts; each abort raises `error`, if one is given."""

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


def new_request(client=None, deadline_s=None):
    """Return a request in flight that starts now; its deadline is in seconds."""
    return RequestInFlight((client or Client()).is_cancelled, deadline_s, time.monotonic())


@pytest.fixture
def counts():
    """Return the list that collects the reported numbers of requests in flight."""
    return []


@pytest.fixture
def control(counts):
    """Return a control with two slots and a watchdog that looks every millisecond."""
    running = RequestsInFlight(TenantShares(2, 1.0), 0.001, counts.append)
    yield running
    running.close()


def test_limit_is_exact_and_slots_are_given_back(control, counts):
    """One request more is refused, with limit and count. A released slot is free again."""
    requests = [new_request() for _ in range(3)]
    control.admit(requests[0])
    control.admit(requests[1])

    with pytest.raises(OverloadedError, match="2 requests are in flight; the limit is 2"):
        control.admit(requests[2])

    control.release(requests[0])
    control.admit(requests[2])
    assert counts == [1, 2, 1, 2]


def test_many_at_once_never_exceed_the_limit(counts):
    """Admission is atomic: of 20 threads at once, exactly as many get a slot as there are slots."""
    control = RequestsInFlight(TenantShares(5, 1.0), 1.0, counts.append)
    start, refused = threading.Barrier(20), []

    def come():
        start.wait(LIMIT_S)
        try:
            control.admit(new_request())
        except OverloadedError as error:
            refused.append(error)

    threads = [threading.Thread(target=come) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    control.close()

    assert len(refused) == 15
    assert counts == [1, 2, 3, 4, 5]


def test_request_ends_when_its_client_leaves_or_its_deadline_passes():
    """Before that it may go on. The deadline's message names the limit and the time passed."""
    client = Client()
    assert new_request(client, deadline_s=1000.0).reason_to_end() is None
    client.has_gone = True
    left = new_request(client)
    left.poll()
    assert isinstance(left.reason_to_end(), RequestCancelledError)
    overdue = RequestInFlight(Client().is_cancelled, 0.25, time.monotonic() - 0.5)
    with pytest.raises(DeadlineExceededError, match=r"deadline_ms is 250; passed: 5\d\d ms"):
        overdue.check()


def test_calls_of_a_request_that_must_end_are_aborted_repeatedly(control):
    """A stop that overtakes its call is lost, hence the repetition.

    Other requests are left alone.
    """
    leaving, staying = Client(), Client()
    requests = [new_request(leaving), new_request(staying)]
    calls = [Call(error=RuntimeError("engine is gone")), Call(), Call()]
    requests[0].watch(calls[0])
    requests[0].watch(calls[1])
    requests[1].watch(calls[2])
    for each in requests:
        control.admit(each)

    leaving.has_gone = True

    assert calls[0].was_aborted_twice.wait(LIMIT_S)
    assert calls[2].num_aborts == 0


def test_watchdog_asks_for_few_clients_in_a_turn():
    """With many requests, each client has its turn, and none is asked for in every turn."""
    beats = []
    heartbeat = SimpleNamespace(beat=lambda **fields: beats.append(fields))
    control = RequestsInFlight(TenantShares(40, 1.0), 0.001, lambda _: None, heartbeat)
    clients = [Client() for _ in range(3 * in_flight.MAX_POLLS)]
    for client in clients:
        control.admit(new_request(client))
    deadline_s = time.monotonic() + LIMIT_S
    while min(client.num_asked for client in clients) < 3 and time.monotonic() < deadline_s:
        time.sleep(0.001)
    control.close()
    assert min(client.num_asked for client in clients) >= 3
    assert sum(client.num_asked for client in clients) <= in_flight.MAX_POLLS * len(beats)


def test_watchdog_notices_each_of_many_clients_that_leave():
    """Its turn comes sooner or later."""
    control = RequestsInFlight(TenantShares(40, 1.0), 0.001, lambda _: None)
    clients = [Client() for _ in range(3 * in_flight.MAX_POLLS)]
    calls = [Call() for _ in clients]
    for client, call in zip(clients, calls, strict=True):
        request = new_request(client)
        request.watch(call)
        control.admit(request)
    for client in clients:
        client.has_gone = True
    for call in calls:
        assert call.was_aborted_twice.wait(LIMIT_S)
    control.close()


def test_request_whose_thread_waits_for_ever_is_answered_once(control, monkeypatch):
    """An engine that hangs hears no stop, so the watchdog answers the client after GRACE_S."""
    monkeypatch.setattr(in_flight, "GRACE_S", 0.05)
    stuck, given_up, was_given_up = new_request(deadline_s=0.0), [], threading.Event()
    stuck.watch(Call())

    def give_up(error):
        if control.release(stuck):
            given_up.append(error)
            was_given_up.set()

    stuck.give_up = give_up
    control.admit(stuck)

    assert was_given_up.wait(LIMIT_S)
    assert isinstance(given_up[0], DeadlineExceededError)
    assert not control.release(stuck)


def test_triton_is_not_asked_about_a_request_that_has_ended(control):
    """Triton frees a request with its last response, and must not be asked about it any more."""
    client = Client()
    ending = new_request(client, deadline_s=0.0)
    control.admit(ending)

    control.release(ending)

    num_asked = client.num_asked
    ending.poll()
    assert ending.reason_to_end() is None
    assert client.num_asked == num_asked


def test_request_that_the_watchdog_has_answered_goes_no_further(control):
    """If the engine answers after all, the request's own thread stops at its next check."""
    answered = new_request()
    control.admit(answered)
    answered.check()

    control.release(answered)

    with pytest.raises(RequestCancelledError, match="watchdog"):
        answered.check()
