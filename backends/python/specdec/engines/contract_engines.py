"""Engines of the `tensorrtllm` contract behind the loop's protocols.

Both adapters belong to one request and run on its thread.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

from specdec.engines.calls import Call, EngineCalls
from specdec.engines.protocol import Draft, TokenIds, Verification
from specdec.errors import DraftTimeoutError


class ContractTarget:
    """The target engine, for one request."""

    def __init__(self, calls: EngineCalls, end_id: int | None) -> None:
        self._calls = calls
        self._end_id = end_id

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
        num_tokens = 0
        parts = self._calls.run(Call(context, max_tokens, self._end_id, streaming=True))
        finished = False
        try:
            for part in parts:
                num_tokens += len(part.tokens)
                if part.tokens:
                    yield Verification(part.tokens, ended=False, log_probs=part.log_probs)
            finished = True
        finally:
            if not finished:
                # Leaving a stream waits until the engine is done, so it is stopped first.
                self._calls.abort()
        if num_tokens < max_tokens:
            yield Verification((), ended=True)


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
