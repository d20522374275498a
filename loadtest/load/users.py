"""Locust users of the model `specdec`.

Import this module only after Locust has patched the standard library (see locustfile.py).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import gevent
from locust import User, task
from locust.exception import StopUser

from specdec.clients import GrpcClient, HttpClient, SpecdecError
from specdec.loadtest.load.arrivals import keep_pace, poisson_arrivals
from specdec.loadtest.load.exchange import Exchange, Question
from specdec.loadtest.load.samples import OK

if TYPE_CHECKING:
    from specdec.loadtest.load.plan import Plan
    from specdec.loadtest.load.samples import Recorder
    from specdec.loadtest.load.settings import LoadSettings

_PAUSE_AFTER_FAILURE_S = 0.5
_logger = logging.getLogger(__name__)


class Run:
    """The state that all users of one load test share."""

    def __init__(self, settings: LoadSettings, plan: Plan, recorder: Recorder) -> None:
        self.settings = settings
        self.plan = plan
        self.recorder = recorder
        self.num_in_flight = 0
        self.num_finished = 0
        self.num_failed = 0
        self.num_tokens = 0
        self._begin = time.perf_counter()

    def now_s(self) -> float:
        """Return the seconds since the test began."""
        return time.perf_counter() - self._begin


class StreamUser(User):
    """Sends the questions of the plan until there are no more.

    With closed arrivals each user waits for its answer before it asks again. With Poisson arrivals
    one user starts every request at its due time.
    """

    abstract = True
    request_type = ""
    run_state: Run

    def on_start(self) -> None:
        """Connect now, so that the first request's time does not include it."""
        self.client = self.open_client(self.run_state.settings)
        if not self.client.is_ready():
            _logger.warning("%s is not ready", self.run_state.settings.model)

    def on_stop(self) -> None:
        """Disconnect."""
        self.client.close()

    def open_client(self, settings: LoadSettings) -> GrpcClient | HttpClient:
        """Return a client for this protocol."""
        raise NotImplementedError

    @task
    def work(self) -> None:
        """Ask until the plan has no more questions."""
        if self.run_state.settings.rate_per_s is None:
            self._ask_in_turn()
        else:
            self._ask_at_rate(self.run_state.settings.rate_per_s)
        raise StopUser

    def _ask_in_turn(self) -> None:
        while question := self.run_state.plan.next_question(self.run_state.now_s()):
            if self._ask(question) != OK:
                # Asking again at once would put more load on a refusing server than was asked for.
                gevent.sleep(_PAUSE_AFTER_FAILURE_S)

    def _ask_at_rate(self, rate_per_s: float) -> None:
        run = self.run_state
        arrivals = poisson_arrivals(rate_per_s, run.settings.seed)
        started = []
        for due_s, lateness_s in keep_pace(arrivals, run.now_s, gevent.sleep):
            question = run.plan.next_question(due_s, lateness_s)
            if question is None:
                break
            started.append(gevent.spawn(self._ask, question))
        try:
            gevent.joinall(started)
        finally:
            gevent.killall(started)

    def _ask(self, question: Question) -> str:
        run, client = self.run_state, self.client
        exchange = Exchange(question, start_s=run.now_s())
        run.num_in_flight += 1
        try:
            exchange.run(client)
        finally:
            run.num_in_flight -= 1
            self._report(exchange)
        return exchange.outcome

    def _report(self, exchange: Exchange) -> None:
        run = self.run_state
        run.recorder.add(exchange.sample(), exchange.arrivals)
        run.num_finished += 1
        run.num_tokens += len(exchange.token_ids)
        error = None
        if exchange.outcome != OK:
            run.num_failed += 1
            error = SpecdecError(exchange.detail, error_type=exchange.outcome)
            _logger.warning("%s: %s", exchange.question.request.request_id, error)
        self.environment.events.request.fire(
            request_type=self.request_type,
            name=run.settings.model,
            response_time=exchange.e2e_s * 1000,
            response_length=len(exchange.token_ids),
            exception=error,
            context={},
        )


class GrpcStreamUser(StreamUser):
    """Streams over gRPC, on a connection of its own."""

    request_type = "grpc_stream"

    def open_client(self, settings: LoadSettings) -> GrpcClient | HttpClient:
        """Open a connection of its own; by default gRPC would share one among all users."""
        return GrpcClient(
            settings.url,
            model_name=settings.model,
            timeout_s=settings.timeout_s,
            channel_options=[("grpc.use_local_subchannel_pool", 1)],
        )


class GenerateStreamUser(StreamUser):
    """Streams server-sent events over HTTP (`generate_stream`)."""

    request_type = "generate_stream"

    def open_client(self, settings: LoadSettings) -> GrpcClient | HttpClient:
        """Return an HTTP client."""
        return HttpClient(settings.url, model_name=settings.model, timeout_s=settings.timeout_s)
