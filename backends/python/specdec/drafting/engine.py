"""A small model as drafter, and what happens when it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import DraftEngine, TokenIds
from specdec.errors import EngineFailedError, RequestCancelledError
from specdec.rounds import Round

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class DraftHealth:
    """Shared by all requests: a draft engine that fails is left alone for a while.

    The pause doubles with each failure in a row, so that a dead engine costs a request at most
    one failed call now and then. Thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pause_s = FIRST_PAUSE_S
        self._resume_at = 0.0

    def usable(self) -> bool:
        return self._clock() >= self._resume_at

    def failed(self) -> None:
        with self._lock:
            self._resume_at = self._clock() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def succeeded(self) -> None:
        self._pause_s = FIRST_PAUSE_S


class EngineDrafter:
    """Asks a draft engine. Its failures are counted and reported, and never reach the request."""

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

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        if not self._health.usable():
            return NO_PROPOSAL
        try:
            num_tokens = min(self._num_tokens, max_tokens)
            guess = self._engine.draft(context, num_tokens)
            tokens = guess.tokens[:num_tokens]
            self._check(tokens)
        except RequestCancelledError:
            return NO_PROPOSAL  # The loop finds out at its next call.
        except Exception as error:  # noqa: BLE001 - a failing draft never fails a request
            self._health.failed()
            self._report_failure(self._name, error)
            return NO_PROPOSAL
        self._health.succeeded()
        if not tokens:
            return NO_PROPOSAL
        return Proposal(
            tokens, self._name, self._source, guess.logits, log_probs=guess.log_probs[: len(tokens)]
        )

    def _check(self, tokens: tuple[int, ...]) -> None:
        # The target would refuse the whole request for a token that it does not know.
        for token in tokens:
            if not 0 <= token < self._vocab_size:
                raise EngineFailedError(
                    f"drafted token {token}; the target's vocabulary has {self._vocab_size}"
                )

    def observe(self, confirmed: Round) -> None:
        """Nothing to learn."""
