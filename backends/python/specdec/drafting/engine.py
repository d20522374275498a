"""The drafter that asks a draft model, and the pause after its failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import DraftEngine, TokenIds
from specdec.errors import (
    EngineFailedError,
    InvalidRequestError,
    RequestCancelledError,
    UnsupportedError,
)
from specdec.rounds import Round

FIRST_PAUSE_S = 1.0
"""Seconds for which a draft engine is not asked after its first failure."""
LONGEST_PAUSE_S = 60.0
"""Limit in seconds for that pause, which doubles with each further failure."""


class DraftHealth:
    """Decides whether a draft engine may be asked. Shared by all requests; thread-safe.

    After a failure the engine is not asked for a while. The next failure makes a pause of twice
    the length, until a call succeeds, so that a dead engine seldom costs a request a failed call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pause_s = FIRST_PAUSE_S
        self._resume_at = 0.0

    def usable(self) -> bool:
        """Return whether no pause is running."""
        return self._clock() >= self._resume_at

    def failed(self) -> None:
        with self._lock:
            now_s = self._clock()
            if now_s < self._resume_at:
                return  # The call began before the pause, and failed with those that caused it.
            self._resume_at = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def succeeded(self) -> None:
        self._pause_s = FIRST_PAUSE_S


class EngineDrafter:
    """Proposes what a draft engine drafts, up to `num_tokens` tokens a round.

    If the engine fails, the drafter reports it, has no proposal and does not raise. Draft tokens
    outside the target's vocabulary (`vocab_size`) count as a failure.
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

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        if not self._health.usable():
            return NO_PROPOSAL
        try:
            num_tokens = min(self._num_tokens, max_tokens)
            guess = self._engine.draft(context, num_tokens)
            tokens = guess.tokens[:num_tokens]
            self._check(tokens)
        except RequestCancelledError:
            return NO_PROPOSAL  # The loop's next call of the target raises it again.
        except (InvalidRequestError, UnsupportedError) as error:
            self._report_failure(self._name, error)  # Other requests may well be drafted for.
            return NO_PROPOSAL
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
        # The target refuses a whole request that has a token outside its vocabulary.
        for token in tokens:
            if not 0 <= token < self._vocab_size:
                raise EngineFailedError(
                    f"drafted token {token}; the target's vocabulary has {self._vocab_size}"
                )

    def observe(self, confirmed: Round) -> None:
        """Do nothing: the next context tells the draft engine what was confirmed."""
