"""Drafting while the target verifies, for a draft model on a device of its own.

The method follows PEARL (Liu et al., ICLR 2025). While the target verifies a draft, a call "ahead"
asks the draft model to continue after it. The first token of that call predicts the target's own
token of this round, and the rest is the draft of the next round.

- If the target accepts the whole draft and then generates the predicted token, the next draft is
  used (post-verify). Otherwise it is dropped and the call is ended.
- If there is no draft for a round and drafting takes long, the target makes a plain step without
  waiting. The call ahead then predicts the token of that step (pre-verify).

Use this only where drafts are verified by equality. The tokens are then the target's own, whichever
call ends first. Modes that compare probabilities need the distribution of each draft token, and
their proofs assume that a draft is drawn for its own round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace

import numpy as np

from specdec.drafting.models.waiting import WaitMeter
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds

MAX_RUNNING = 2
"""Most calls ahead of one request at a time: the newest, and one that is being ended. Without a
limit, an engine that hangs would get more and more calls."""


class AheadDrafter:
    """A drafter whose draft model prepares the next draft while the target verifies this one.

    If no draft is ready, the request's times and acceptance decide whether to wait for one or to
    let the target make a plain step (`WaitMeter`).
    """

    def __init__(
        self,
        drafter: Drafter,
        ahead: Drafter,
        num_tokens: int,
        abort: Callable[[], None],
        executor: Executor,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take two drafters that use the same draft model.

        `drafter` proposes chains of up to `num_tokens` tokens. `ahead` proposes chains of up to one
        token more and may be called on any thread; `executor` runs it. Their proposals have no
        logits. `abort` ends the newest call of `ahead`. `clock` returns seconds.
        """
        self._drafter = drafter
        self._ahead = ahead
        self._num_tokens = num_tokens
        self._abort = abort
        self._executor = executor
        self._clock = clock
        self._context: TokenIds | None = None
        self._call: Future[Proposal] | None = None
        self._running: list[Future[Proposal]] = []
        self._is_past_first_round = False
        self._is_asked, self._was_asked = False, True
        self._num_proposed = 0
        self._meter = WaitMeter()

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        proposal = self._take_ready(context)
        # If another drafter drafted the last round, it may draft the next one too, and the call
        # ahead would be wasted. So draft for this round.
        is_alone = not self._was_asked
        num_tokens = min(self._num_tokens, max_tokens)
        if not proposal.tokens and (is_alone or self._meter.is_worth_waiting(num_tokens)):
            proposal = self._drafter.propose(context, max_tokens)
        self._is_asked, self._num_proposed = True, len(proposal.tokens)
        self._begin(context, proposal.tokens, max_tokens)
        return proposal

    def observe(self, confirmed: Round) -> None:
        if self._is_past_first_round:
            self._meter.passed(confirmed.target_s / confirmed.num_passes)
        # In the first round both engines process the prompt, so its time is not that of a pass.
        self._is_past_first_round = True
        self._was_asked, self._is_asked = self._is_asked, False
        if self._num_proposed:
            num_accepted = confirmed.num_accepted
            self._meter.compared(num_accepted, min(num_accepted + 1, self._num_proposed))
        self._num_proposed = 0
        self._drafter.observe(confirmed)

    def _take_ready(self, context: TokenIds) -> Proposal:
        """Wait for the last call ahead, and return what it drafted after `context`.

        If the target has rejected the draft that the call assumed, end the call. Return no proposal
        then, nor if the call predicted other tokens than the target's.
        """
        begun, call = self._context, self._call
        self._context = self._call = None
        if begun is None or call is None:
            return NO_PROPOSAL
        num_confirmed = len(context) - len(begun)
        if num_confirmed < 1 or not np.array_equal(context[: len(begun)], begun):
            if not call.cancel():
                self._abort()
            return NO_PROPOSAL
        found = call.result()
        confirmed = tuple(context[len(begun) :].tolist())
        is_accepted = found.tokens[:num_confirmed] == confirmed
        if found.tokens:
            self._meter.compared(int(is_accepted), 1)
        if not is_accepted or len(found.tokens) == num_confirmed:
            return NO_PROPOSAL
        return replace(
            found, tokens=found.tokens[num_confirmed:], log_probs=found.log_probs[num_confirmed:]
        )

    def _begin(self, context: TokenIds, draft: tuple[int, ...], max_tokens: int) -> None:
        # The call predicts the target's own token, and then drafts after it.
        num_tokens = max_tokens - len(draft)
        self._running = [each for each in self._running if not each.done()]
        if num_tokens < 2 or len(self._running) >= MAX_RUNNING:
            return
        self._context = np.concatenate((context, np.asarray(draft, dtype=np.int32)))
        is_measured = self._is_past_first_round
        self._call = self._executor.submit(self._run, self._context, num_tokens, is_measured)
        self._running.append(self._call)

    def _run(self, context: TokenIds, num_tokens: int, is_measured: bool) -> Proposal:
        start_s = self._clock()
        proposal = self._ahead.propose(context, num_tokens)
        if is_measured and proposal.tokens:  # A call that was ended early has none.
            self._meter.called(len(proposal.tokens), self._clock() - start_s)
        return proposal
