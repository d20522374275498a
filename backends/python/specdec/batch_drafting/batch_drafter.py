"""The drafters of all requests in an engine's batch, asked once a step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_drafting.rows import BuildDrafter, Row, RowClock, RowStep
from specdec.drafting.models.engine import DraftHealth
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.drafting.steered import SteeredDrafter
from specdec.errors import DraftTimeoutError
from specdec.rounds import Round
from specdec.steering.load import Load
from specdec.token_ids import TokenIds

BATCH = "batch"
"""Name under which failures of all drafters together are reported."""


@dataclass(frozen=True, slots=True)
class StepDrafts:
    """The answer to one step; its tuples have one entry for each row, in the step's order."""

    tokens: tuple[tuple[int, ...], ...]
    """Draft tokens for the next step; none for a plain step."""
    rounds: tuple[Round | None, ...]
    """The rounds that the step confirmed; None for a request whose prompt is still read."""
    needs_own_draft: bool
    """Whether any request can use a draft of the engine's own drafter after the next step."""


class _Job:
    """The drafting for one step, on the thread that drafts."""

    def __init__(self, rows: list[Row], deadline_s: float) -> None:
        """Take the rows to ask, and the time after which no further row is asked."""
        self.rows = rows
        self.deadline_s = deadline_s
        self.proposals = [NO_PROPOSAL] * len(rows)
        self.is_over = threading.Event()
        self.is_abandoned = False
        """Whether the engine went on without the proposals."""


class BatchDrafter:
    """The drafters of all requests in an engine's batch.

    All methods are called by the engine, on one thread; none raises. The drafters run on a thread
    of their own.

    - In each step, rows are asked until `budget_s` seconds have passed. The others get no draft
      tokens in this step, and come first in the next one.
    - If a single drafter then needs more than `budget_s` again, the step goes on without any draft
      tokens. Drafting pauses, at least until that drafter is done, and longer each time that this
      happens.
    - A drafter that raises is dropped, and its request goes on without speculation. New requests
      for the same drafter go without speculation during a pause, which also gets longer each time.
    """

    def __init__(
        self,
        build: BuildDrafter,
        load: Load,
        budget_s: float,
        *,
        remember: Callable[[str | None, TokenIds], None],
        report_failure: Callable[[str, Exception], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start the thread that drafts.

        `remember` gets tenant, prompt and answer [n] int32 of complete requests. `report_failure`
        gets the drafter as the request names it and its error, or BATCH if a step's drafts came too
        late. `clock` returns seconds.
        """
        self._build = build
        self._load = load
        self._budget_s = budget_s
        self._remember = remember
        self._report_failure = report_failure
        self._clock = clock
        self._rows: dict[str, Row] = {}
        self._health = DraftHealth(clock)
        self._health_by_name: dict[str, DraftHealth] = {}
        """Health of each drafter, as requests name it. Used by the thread that drafts."""
        self._running: _Job | None = None
        """The latest drafting, which may still run."""
        self._draft_s = 0.0
        """Seconds for which the latest step waited."""
        self._first = 0
        """Index of the row that is asked first."""
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="batch-drafter", daemon=True)
        self._thread.start()

    def begin(self, request_id: str, prompt: TokenIds, options: DraftingOptions) -> None:
        """Take a new request with its prompt [n ≥ 1] int32."""
        self._rows[request_id] = Row(options, prompt, self._clock())

    def step(self, steps: Sequence[RowStep]) -> StepDrafts:
        """Take what a step gave all running requests, and return their next draft tokens.

        A request that was not begun gets no draft tokens.
        """
        now_s = self._clock()
        self._load.set_inflight(len(steps))
        rows = [self._rows.get(each.request_id) for each in steps]
        rounds = tuple(
            row.confirm(step, now_s, self._draft_s) if row is not None else None
            for row, step in zip(rows, steps, strict=True)
        )
        asked = [
            row
            for row, confirmed in zip(rows, rounds, strict=True)
            if row is not None and confirmed
        ]
        found = iter(self._proposals(asked))
        proposals = tuple(next(found) if confirmed else NO_PROPOSAL for confirmed in rounds)
        for row, proposal in zip(rows, proposals, strict=True):
            if row is not None:
                row.sent(proposal)
        self._draft_s = self._clock() - now_s
        needs_own_draft = any(each.num_next is not None for each in proposals)
        return StepDrafts(tuple(each.tokens for each in proposals), rounds, needs_own_draft)

    def end(self, request_id: str, *, is_complete: bool) -> None:
        """Drop a request; `is_complete`: its answer ran to its end."""
        row = self._rows.pop(request_id, None)
        if row is not None:
            self._tasks.put(lambda: self._end(row, is_complete=is_complete))

    def close(self) -> None:
        """End the thread, without waiting for a drafter that hangs."""
        self._tasks.put(None)
        self._thread.join(timeout=2 * self._budget_s)

    def _proposals(self, rows: list[Row]) -> list[Proposal]:
        """Return the proposal of each row; none of them has one if drafting pauses or is late."""
        nothing = [NO_PROPOSAL] * len(rows)
        if not rows or (self._running is not None and not self._running.is_over.is_set()):
            return nothing
        begun_s = self._health.begin()
        if begun_s is None:
            return nothing
        job = self._running = _Job(rows, self._clock() + self._budget_s)
        self._tasks.put(lambda: self._draft(job))
        if job.is_over.wait(2 * self._budget_s):
            self._health.succeeded(begun_s)
            return job.proposals
        job.is_abandoned = True
        self._health.failed(begun_s)
        limit_ms = 2000 * self._budget_s
        self._report_failure(BATCH, DraftTimeoutError(f"no drafts within {limit_ms:g} ms"))
        return nothing

    # The thread that drafts.

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _draft(self, job: _Job) -> None:
        """Ask the rows of a step in turn, beginning after the last row asked in the step before."""
        num_rows = len(job.rows)
        first = self._first % num_rows
        for index in (*range(first, num_rows), *range(first)):
            if job.is_abandoned or self._clock() > job.deadline_s:
                self._first = index
                break
            job.proposals[index] = self._propose(job.rows[index])
        job.is_over.set()

    def _propose(self, row: Row) -> Proposal:
        try:
            return row.propose(self._build_healthy)
        except Exception as error:  # noqa: BLE001 - a failing drafter never fails a step
            self._drop(row, error)
            return NO_PROPOSAL

    def _build_healthy(
        self, options: DraftingOptions, prompt: TokenIds, clock: RowClock
    ) -> Drafter | None:
        """Return the request's drafter; None during a pause after failures of such drafters."""
        begun_s = self._health_of(options).begin()
        if begun_s is None:
            return None
        try:
            return self._build(options, prompt, clock)
        finally:
            self._health_of(options).ended(begun_s)

    def _drop(self, row: Row, error: Exception) -> None:
        """Go on without the row's drafter, which has raised."""
        drafter, row.drafter = row.drafter, None
        self._health_of(row.options).failed(self._clock())
        self._report_failure(row.options.drafter, error)
        if isinstance(drafter, SteeredDrafter):
            with suppress(Exception):  # It has failed before, which was reported.
                drafter.close(is_complete=False)

    def _health_of(self, options: DraftingOptions) -> DraftHealth:
        return self._health_by_name.setdefault(options.drafter, DraftHealth(self._clock))

    def _end(self, row: Row, *, is_complete: bool) -> None:
        """Report a request's end to its drafter, and remember its text if it is complete."""
        try:
            row.observe_all()
            if isinstance(row.drafter, SteeredDrafter):
                row.drafter.close(is_complete=is_complete)
            if is_complete:
                self._remember(row.options.tenant, row.tokens.copy())
            if row.drafter is not None:
                self._health_of(row.options).succeeded(row.begun_s)
        except Exception as error:  # noqa: BLE001 - the thread goes on for the other requests
            self._drop(row, error)
