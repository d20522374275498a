"""Engines of the `tensorrtllm` contract behind the loop's protocols.

Both adapters belong to one request and run on its thread.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

import numpy as np

from specdec.engines.calls import Call, EngineCalls
from specdec.engines.protocol import Draft, TokenIds, Verification
from specdec.errors import DraftTimeoutError

MAX_PART_LEN = 16
"""Tokens of one call where a stream is made of calls. The first call is for one, each further one
for twice as many: the first token is there at once, and the way to the engine and back, with a step
that another batch takes meanwhile, is soon paid for 16 at a time. By number and not by time, so
that a seed gives the same text again."""


class ContractTarget:
    """The target engine, for one request."""

    def __init__(self, calls: EngineCalls, end_id: int | None) -> None:
        self._calls = calls
        self._end_id = end_id
        self._part_len = 1

    def verify(self, context: TokenIds, draft: Draft) -> Verification:
        tokens: tuple[int, ...] = ()
        log_probs: tuple[float, ...] = ()
        num_accepted = num_drafted = None
        next_drafts: tuple[int, ...] = ()
        next_parents: tuple[int, ...] = ()
        call = Call(context, len(draft.tokens) + 1, self._end_id, draft)
        for part in self._calls.run(call):
            tokens += part.tokens
            log_probs += part.log_probs
            num_accepted, num_drafted = part.num_accepted, part.num_drafted
            next_drafts, next_parents = part.next_drafts, part.next_parents
        # The contract has no finish reason and leaves the end token out: a result that stops
        # within the draft, without a correction, is one that met the end.
        num_followed = len(draft.path(tokens)) if num_accepted is None else num_accepted
        ended = len(tokens) <= num_followed
        return Verification(
            tokens, ended, log_probs, num_accepted, num_drafted, next_drafts, next_parents
        )

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        if not self._calls.can_stream:
            yield from self._parts(context, max_tokens)
            return
        num_tokens = 0
        parts = self._calls.run(Call(context, max_tokens, self._end_id, streaming=True))
        is_over = False
        try:
            for part in parts:
                num_tokens += len(part.tokens)
                is_over = num_tokens >= max_tokens  # The reader may leave with the last token.
                if part.tokens:
                    yield Verification(part.tokens, ended=False, log_probs=part.log_probs)
            is_over = True
        finally:
            if not is_over:
                # Leaving a stream waits until the engine is done, so it is stopped first.
                self._calls.abort()
        if num_tokens < max_tokens:
            yield Verification((), ended=True)

    def _parts(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        """Calls of one response each: what an engine streams unasked can lock up the process."""
        while max_tokens:
            call = Call(context, min(self._part_len, max_tokens), self._end_id)
            self._part_len = min(2 * self._part_len, MAX_PART_LEN)
            said = [*self._calls.run(call)]
            tokens = tuple(token for part in said for token in part.tokens)
            log_probs = tuple(value for part in said for value in part.log_probs)
            ended = len(tokens) < call.max_new_tokens
            yield Verification(tokens, ended, log_probs)
            if ended:
                return
            context = np.concatenate([context, np.asarray(tokens, dtype=np.int32)])
            max_tokens -= len(tokens)


class ContractDraft:
    """A draft engine, for one request; a call that takes too long is given up."""

    def __init__(
        self,
        calls: EngineCalls,
        end_id: int | None,
        executor: ThreadPoolExecutor,
        timeout_s: float,
        returns_logits: bool = False,
    ) -> None:
        """`returns_logits`: each guess comes with what it was drawn from."""
        self._returns_logits = returns_logits
        self._calls = calls
        self._end_id = end_id
        self._executor = executor
        self._timeout_s = timeout_s

    def draft(self, context: TokenIds, num_tokens: int) -> Draft:
        future = self._executor.submit(self._draft, context, num_tokens)
        try:
            return future.result(self._timeout_s)
        except FutureTimeoutError:
            future.cancel()
            self._calls.abort()
            raise DraftTimeoutError(
                f"no draft within the limit of {self._timeout_s * 1000:.0f} ms"
            ) from None

    def _draft(self, context: TokenIds, num_tokens: int) -> Draft:
        tokens: tuple[int, ...] = ()
        log_probs: tuple[float, ...] = ()
        logits = None
        call = Call(context, num_tokens, self._end_id, returns_logits=self._returns_logits)
        for part in self._calls.run(call):
            tokens += part.tokens
            log_probs += part.log_probs
            logits = part.logits
        return Draft(tokens, logits, log_probs=log_probs)
