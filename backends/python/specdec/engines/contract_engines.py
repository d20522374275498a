"""Adapters from `EngineCalls` to the engines that the loop uses.

Each adapter serves one request. The adapters apply the rules of NVIDIA's `tensorrtllm` backend,
such as how to tell that an answer has ended.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

import numpy as np

from specdec.engines.calls import Call, EngineCalls
from specdec.engines.protocol import Draft, Verification
from specdec.errors import DraftTimeoutError
from specdec.token_ids import TokenIds, TopLogProbs

MAX_PART_LEN = 16
"""Most tokens of a call, where several calls replace a stream. The first call asks for 1 token, and
each next one for twice as many. So the first token comes at once, and up to 16 tokens soon share
the fixed cost of a call: the way to the engine and back, and the wait for a running step. The
lengths do not depend on time, so a seed gives the same text again."""


class ContractTarget:
    """The target of one request: a `TargetEngine` that is called through `EngineCalls`."""

    def __init__(self, calls: EngineCalls, end_id: int | None) -> None:
        self._calls = calls
        self._end_id = end_id
        self._part_len = 1

    def verify(self, context: TokenIds, draft: Draft) -> Verification:
        tokens: tuple[int, ...] = ()
        log_probs: tuple[float, ...] = ()
        top_log_probs: tuple[TopLogProbs, ...] = ()
        num_accepted = num_draft_tokens = None
        next_drafts: tuple[int, ...] = ()
        next_parents: tuple[int, ...] = ()
        call = Call(context, len(draft.tokens) + 1, self._end_id, draft)
        for part in self._calls.run(call):
            tokens += part.tokens
            log_probs += part.log_probs
            top_log_probs += part.top_log_probs
            num_accepted, num_draft_tokens = part.num_accepted, part.num_draft_tokens
            next_drafts, next_parents = part.next_drafts, part.next_parents
        # The contract has no finish reason and leaves out the end token. So the answer has ended if
        # the target's own token is missing after the accepted draft tokens.
        num_followed = len(draft.path(tokens)) if num_accepted is None else num_accepted
        ended = len(tokens) <= num_followed
        return Verification(
            tokens,
            ended,
            log_probs,
            top_log_probs,
            num_accepted,
            num_draft_tokens,
            next_drafts,
            next_parents,
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
                # The reader may close this generator once it has the last token.
                is_over = num_tokens >= max_tokens
                if part.tokens:
                    yield Verification(
                        part.tokens,
                        ended=False,
                        log_probs=part.log_probs,
                        top_log_probs=part.top_log_probs,
                    )
            is_over = True
        finally:
            if not is_over:
                # Closing the stream waits until the engine is done, so first ask it to end.
                self._calls.abort()
        if num_tokens < max_tokens:
            yield Verification((), ended=True)

    def _parts(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        """Generate by several calls with one response each.

        A stream whose responses do not wait for the reader can lock up this process (receipts.py).
        """
        while max_tokens:
            call = Call(context, min(self._part_len, max_tokens), self._end_id)
            self._part_len = min(2 * self._part_len, MAX_PART_LEN)
            parts = [*self._calls.run(call)]
            tokens = tuple(token for part in parts for token in part.tokens)
            log_probs = tuple(value for part in parts for value in part.log_probs)
            top = tuple(each for part in parts for each in part.top_log_probs)
            ended = len(tokens) < call.max_new_tokens
            yield Verification(tokens, ended, log_probs, top)
            if ended:
                return
            context = np.concatenate([context, np.asarray(tokens, dtype=np.int32)])
            max_tokens -= len(tokens)


class ContractDraft:
    """The draft engine of one request: a `DraftEngine` that is called through `EngineCalls`.

    A call that takes longer than `timeout_s` seconds is given up with DraftTimeoutError.
    """

    def __init__(
        self,
        calls: EngineCalls,
        end_id: int | None,
        executor: ThreadPoolExecutor,
        timeout_s: float,
        returns_logits: bool = False,
    ) -> None:
        """Take the calls of the engine and an executor that runs them.

        With `returns_logits`, drafts contain the logits from which their tokens were drawn.
        """
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
