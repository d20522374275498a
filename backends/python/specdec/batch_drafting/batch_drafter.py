"""The drafters of all requests in an engine's batch, asked once a step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue

from specdec.batch_drafting.draft_models import DraftModels, PostponedCalls
from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_drafting.requests import (
    BatchRequest,
    BuildDrafter,
    RequestStart,
    RequestStep,
    RoundClock,
    StepDrafts,
)
from specdec.drafting.models.engine import DraftHealth
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.drafting.steered import SteeredDrafter
from specdec.errors import DraftTimeoutError, InvalidRequestError, UnsupportedError
from specdec.steering.load import Load
from specdec.token_ids import TokenIds

BATCH = "batch"
"""Name under which failures of all drafters together are reported."""

HANG_S = 10.0
"""Seconds after which a drafter that has not returned counts as hanging. Drafting then ends for
good: the results of later steps would pile up for it."""


class _Step:
    """The requests to ask in one step, and their proposals."""

    def __init__(self, requests: list[BatchRequest], now_s: float, budget_s: float) -> None:
        self.requests = requests
        self.deadline_s = now_s + budget_s
        """Time after which no further request is asked."""
        self.hangs_s = now_s + HANG_S
        self.proposals = [NO_PROPOSAL] * len(requests)
        self.is_over = threading.Event()
        self.is_abandoned = False
        """Whether the engine went on without the proposals."""


class BatchDrafter:
    """The drafters of all requests in an engine's batch.

    All methods are called by the engine, on one thread; none raises. The drafters run on a thread
    of their own, the drafting thread.

    - In each step it asks requests in turn until `budget_s` seconds have passed. The others get no
      draft tokens in this step. Then each draft model gets one call for all requests that wait for
      it, if it is chosen at all.
    - If one drafter takes longer than that by `budget_s`, the step goes on without draft tokens,
      and the drafter is dropped when it returns. Drafting pauses until then, and for at least one
      second. Without a success in between, the next pause is twice as long.
    - A drafter that raises is dropped, and its request goes on without speculation. New requests
      for it go without speculation during a pause.
    """

    def __init__(
        self,
        build: BuildDrafter,
        load: Load,
        budget_s: float,
        draft_models: DraftModels | None = None,
        *,
        remember: Callable[[str | None, TokenIds], None],
        report_failure: Callable[[str, Exception], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start the drafting thread.

        `draft_models` may be None if no drafter that `build` returns calls one. `remember` gets
        tenant, prompt and answer [n] int32 of complete requests. `report_failure` gets the drafter
        as the request names it and its error, or BATCH if a step's drafts came too late. `clock`
        returns seconds.
        """
        self._build = build
        self._load = load
        self._budget_s = budget_s
        self._remember = remember
        self._report_failure = report_failure
        self._clock = clock
        self._requests: dict[str, BatchRequest] = {}
        self._health = DraftHealth(clock)
        self._failed: dict[str, DraftHealth] = {}
        """Health of each drafter that failed, as requests name it; for the drafting thread."""
        self._models = PostponedCalls(draft_models, self._report, clock)
        self._running: _Step | None = None
        """The latest drafting, which may still run."""
        self._hangs = False
        self._draft_s = 0.0
        """Seconds that the latest step waited for draft tokens."""
        self._first = 0
        """Index of the request that is asked first."""
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="batch-drafter", daemon=True)
        self._thread.start()

    def begin(self, new: Sequence[RequestStart]) -> list[bool]:
        """Take the requests that begin together; earlier ones with the same ids end.

        Return for each whether the engine's own drafter should read the prompt along.
        """
        now_s = self._clock()
        requests = [BatchRequest(each.options, each.prompt, now_s) for each in new]
        for each, request in zip(new, requests, strict=True):
            self.end(each.request_id, is_complete=False)
            if not self._hangs:
                self._requests[each.request_id] = request
        self._load.set_inflight(len(self._requests))
        return [each.num_next is not None for each in self._proposals(requests, now_s)]

    def step(self, steps: Sequence[RequestStep]) -> StepDrafts:
        """Take the results of a step for all running requests, and return their next draft tokens.

        A request that was not begun gets no draft tokens.
        """
        now_s = self._clock()
        self._load.set_inflight(len(self._requests))
        requests = [self._requests.get(each.request_id) for each in steps]
        rounds = tuple(
            request.confirm(step, now_s, self._draft_s) if request is not None else None
            for request, step in zip(requests, steps, strict=True)
        )
        asked = [
            request
            for request, confirmed in zip(requests, rounds, strict=True)
            if request is not None and confirmed
        ]
        found = iter(self._proposals(asked, now_s))
        proposals = tuple(next(found) if confirmed else NO_PROPOSAL for confirmed in rounds)
        for request, proposal in zip(requests, proposals, strict=True):
            if request is not None:
                request.record_proposal(proposal)
        self._draft_s = self._clock() - now_s
        own = [each.num_next for each in proposals if each.num_next is not None]
        return StepDrafts(proposals, rounds, max(own, default=None))

    def end(self, request_id: str, *, is_complete: bool, last: RequestStep | None = None) -> None:
        """Drop a request.

        `is_complete`: whether its answer ran to its end. `last` is the result of its last step, if
        `step` did not get it.
        """
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        if last is not None:
            request.confirm(last, self._clock(), self._draft_s)
        if not self._hangs:
            self._tasks.put(lambda: self._end(request, is_complete=is_complete))

    def flush(self, timeout_s: float) -> bool:
        """Wait until the drafting thread has seen all steps and ends; return whether it has."""
        is_done = threading.Event()
        self._tasks.put(is_done.set)
        return is_done.wait(timeout_s)

    def close(self) -> None:
        """End the drafting thread, without waiting for a drafter that hangs."""
        self._tasks.put(None)
        self._thread.join(timeout=2 * self._budget_s)

    def _proposals(self, requests: list[BatchRequest], now_s: float) -> list[Proposal]:
        """Return each request's proposal; no request has one if drafting pauses or is late."""
        nothing = [NO_PROPOSAL] * len(requests)
        if not requests or self._is_busy(now_s):
            return nothing
        begun_s = self._health.begin()
        drafting = self._running = _Step(requests, self._clock(), self._budget_s)
        # In a pause the drafters only learn of the rounds.
        drafting.is_abandoned = begun_s is None
        self._tasks.put(lambda: self._draft(drafting))
        if begun_s is None:
            return nothing
        if drafting.is_over.wait(2 * self._budget_s):
            self._health.succeeded(begun_s)
            return drafting.proposals
        drafting.is_abandoned = True
        self._health.failed(begun_s)
        limit_ms = 2000 * self._budget_s
        self._report(BATCH, DraftTimeoutError(f"no drafts within {limit_ms:g} ms"))
        return nothing

    def _is_busy(self, now_s: float) -> bool:
        """Return whether the drafting of an earlier step still runs; drop all if it hangs."""
        running = self._running
        if self._hangs or running is None or running.is_over.is_set():
            return self._hangs
        if now_s > running.hangs_s:
            self._hangs = True
            for request_id in list(self._requests):
                self.end(request_id, is_complete=False)
            error = DraftTimeoutError(f"a drafter hangs for {HANG_S:g} s; drafting has ended")
            self._report(BATCH, error)
        return True

    def _report(self, drafter: str, error: Exception) -> None:
        with suppress(Exception):  # A report that fails must not fail a step.
            self._report_failure(drafter, error)

    # The drafting thread.

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _draft(self, drafting: _Step) -> None:
        """Ask the requests of a step in turn, from the one at which the step before it stopped.

        Those whose prompts were read in the step come last: until they are asked, they count as
        being read, and so the others learn what slowed the step.
        """
        requests = drafting.requests
        first = self._first % len(requests)
        asked: dict[int, BatchRequest] = {}
        in_turn = (*range(first, len(requests)), *range(first))
        for index in sorted(in_turn, key=lambda index: requests[index].is_at_prompt):
            request = requests[index]
            if drafting.is_abandoned:
                if request.built_s is not None:
                    self._observe(request)
                continue
            if self._clock() > drafting.deadline_s:
                self._first = index
                break
            drafting.proposals[index] = self._propose(request)
            asked[index] = request
            if drafting.is_abandoned:
                self._fail(request, DraftTimeoutError("the step went on without this drafter"))
        if not drafting.is_abandoned:
            # Less than the engine waits, so that copies are not lost with a draft that is late.
            timeout_s = drafting.deadline_s + self._budget_s / 2 - self._clock()
            for index, proposal in self._models.proposals(asked, timeout_s):
                drafting.proposals[index] = proposal
        if drafting.is_abandoned:
            for request in asked.values():
                request.withdraw()
        drafting.is_over.set()

    def _propose(self, request: BatchRequest) -> Proposal:
        try:
            return request.propose(self._build_healthy, self._clock())
        except Exception as error:  # noqa: BLE001 - a failing drafter never fails a step
            self._fail(request, error)
            return NO_PROPOSAL

    def _observe(self, request: BatchRequest) -> None:
        try:
            request.observe_all()
        except Exception as error:  # noqa: BLE001 - a failing drafter never fails a step
            self._fail(request, error)

    def _build_healthy(
        self, options: DraftingOptions, prompt: TokenIds, clock: RoundClock
    ) -> Drafter | None:
        """Return the request's drafter; None during a pause after failures of such drafters."""
        health = self._failed.get(options.drafter)
        if health is not None and health.begin() is None:
            return None
        return self._build(options, prompt, clock)

    def _fail(self, request: BatchRequest, error: Exception) -> None:
        """Report a failure, begin a pause for such drafters, and drop the request's drafter."""
        name, built_s = request.options.drafter, request.built_s
        self._report(name, error)
        is_refused = isinstance(error, InvalidRequestError | UnsupportedError)
        if built_s is not None and not is_refused:
            self._failed.setdefault(name, DraftHealth(self._clock)).failed(built_s)
        elif built_s is not None and name in self._failed:
            self._failed[name].ended(built_s)
        drafter, request.drafter = request.drafter, None
        if isinstance(drafter, SteeredDrafter):
            with suppress(Exception):  # The failure was reported before.
                drafter.close(is_complete=False)

    def _end(self, request: BatchRequest, *, is_complete: bool) -> None:
        """Report a request's end to its drafter, and remember its text if it is complete."""
        self._observe(request)
        drafter, name = request.drafter, request.options.drafter
        try:
            if isinstance(drafter, SteeredDrafter):
                drafter.close(is_complete=is_complete)
        except Exception as error:  # noqa: BLE001 - the thread goes on for the other requests
            self._fail(request, error)
        health = self._failed.get(name)
        if health is not None and request.drafter is not None and request.built_s is not None:
            (health.succeeded if is_complete else health.ended)(request.built_s)
        if is_complete:
            with suppress(Exception):  # Only the drafter `suffix` would miss the text.
                self._remember(request.options.tenant, request.tokens.copy())
