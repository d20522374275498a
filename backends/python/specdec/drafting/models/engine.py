"""The drafter that asks a draft model, and the pause after its failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import DraftEngine
from specdec.errors import (
    EngineFailedError,
    InvalidRequestError,
    RequestCancelledError,
    UnsupportedError,
)
from specdec.rounds import Round
from specdec.token_ids import TokenIds

FIRST_PAUSE_S = 1.0
"""Seconds without calls after a draft engine's first failure."""
LONGEST_PAUSE_S = 300.0
"""Limit of that pause in seconds; it doubles with each further failure. An engine that hangs keeps
one of Triton's threads for each call, for ever, and hours of calls must not use them up."""


class DraftHealth:
    """The health of a draft engine, which decides whether it may be called.

    After a failure the engine gets no calls for a while. Then a single call tries it. If that call
    fails too, the next pause is twice as long. Shared by all requests; thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pause_s = FIRST_PAUSE_S
        self._failed_s: float | None = None
        """Time of the engine's last failure; None if a call has succeeded since."""
        self._is_tried = False

    def begin(self) -> float | None:
        """Return the time at which the caller's call begins; None if it may make none now.

        When the call is over, report it to `failed`, `succeeded` or `ended` with this time.
        """
        with self._lock:
            now_s = self._clock()
            if self._failed_s is not None:
                if self._is_tried or now_s < self._failed_s + self._pause_s:
                    return None
                self._is_tried = True
            return now_s

    def failed(self, begun_s: float) -> None:
        """Begin a pause, unless the call began before the last failure."""
        with self._lock:
            if self._is_old(begun_s):
                return
            if self._failed_s is not None:
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._failed_s, self._is_tried = self._clock(), False

    def succeeded(self, begun_s: float) -> None:
        """End the pause, unless the call began before the last failure."""
        with self._lock:
            if not self._is_old(begun_s):
                self._failed_s, self._is_tried = None, False
                self._pause_s = FIRST_PAUSE_S

    def ended(self, begun_s: float) -> None:
        """Record the end of a call that shows neither a failure nor a success of the engine."""
        with self._lock:
            if not self._is_old(begun_s):
                self._is_tried = False

    def _is_old(self, begun_s: float) -> bool:
        return self._failed_s is not None and begun_s <= self._failed_s


class EngineDrafter:
    """A drafter that proposes a draft engine's tokens, up to `num_tokens` a round.

    If the engine fails, the drafter reports the failure and has no proposal; it never raises. Draft
    tokens outside the target's vocabulary (`vocab_size`) count as a failure. If the engine refuses
    the request, the drafter reports this once and proposes nothing more.
    """

    def __init__(
        self,
        name: str,
        source: int,
        num_tokens: int,
        vocab_size: int,
        engine: DraftEngine,
        health: DraftHealth,
        report_failure: Callable[[str, Exception], None],
    ) -> None:
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._vocab_size = vocab_size
        self._engine = engine
        self._health = health
        self._report_failure = report_failure
        self._is_refused = False

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        if self._is_refused or (begun_s := self._health.begin()) is None:
            return NO_PROPOSAL
        try:
            num_tokens = min(self._num_tokens, max_tokens)
            draft = self._engine.draft(context, num_tokens)
            tokens = draft.tokens[:num_tokens]
            self._check(tokens)
        except RequestCancelledError:
            self._health.ended(begun_s)
            return NO_PROPOSAL  # The loop's next call of the target raises it again.
        except (InvalidRequestError, UnsupportedError) as error:
            # Contexts only grow, so the engine would refuse the next round too.
            self._is_refused = True
            self._health.ended(begun_s)
            self._report_failure(self._name, error)
            return NO_PROPOSAL
        except Exception as error:  # noqa: BLE001 - a failing draft never fails a request
            self._health.failed(begun_s)
            self._report_failure(self._name, error)
            return NO_PROPOSAL
        self._health.succeeded(begun_s)
        if not tokens:
            return NO_PROPOSAL
        return Proposal(
            tokens, self._name, self._source, draft.logits, log_probs=draft.log_probs[: len(tokens)]
        )

    def _check(self, tokens: tuple[int, ...]) -> None:
        # The target refuses a whole request that has a token outside its vocabulary.
        for token in tokens:
            if not 0 <= token < self._vocab_size:
                raise EngineFailedError(
                    f"drafted token {token}; the target's vocabulary has {self._vocab_size}"
                )

    def observe(self, confirmed: Round) -> None:
        """Do nothing: the next context holds the confirmed tokens."""
