"""Drafting while the target verifies, for a draft engine on a device of its own.

After PEARL (Liu et al., ICLR 2025). Behind the draft that the target is checking the engine is
already asked to go on: its first token is a guess of the target's own next one, the rest is the
next draft. It is ready when the target confirms the whole draft and says the guessed token
(post-verify); else the call is ended. Where nothing is ready and drafting takes long, the target
makes a plain pass meanwhile, and the same call guesses what it will say (pre-verify).

A proposal is only ever a guess, so verification by equality says the target's own tokens whatever
arrives when. Verification by probabilities also looks at what each guess was drawn from, and its
proof speaks of drafts that are drawn for their round; it is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace

import numpy as np

from specdec.control.waiting import WaitMeter
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round

MAX_RUNNING = 2
"""Calls ahead of one request: the newest, and one that is being ended. An engine that hangs gets no
more of them."""


class AheadDrafter:
    """Asks `ahead` on another thread for what comes behind the proposal that it returns."""

    def __init__(
        self,
        drafter: Drafter,
        ahead: Drafter,
        num_tokens: int,
        abort: Callable[[], None],
        executor: Executor,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`drafter` proposes chains of `num_tokens`, `ahead` of one more, on any thread; no logits.

        `abort` ends the newest call of `ahead`.
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
        self._has_prompts = False
        self._is_asked, self._was_asked = False, True
        self._num_offered = 0
        self._meter = WaitMeter()

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        proposal = self._ready(context)
        # Who is asked now and then may not be asked for what a call ahead will have said.
        is_alone = not self._was_asked
        num_tokens = min(self._num_tokens, max_tokens)
        if not proposal.tokens and (is_alone or self._meter.is_worth_waiting(num_tokens)):
            proposal = self._drafter.propose(context, max_tokens)
        self._is_asked, self._num_offered = True, len(proposal.tokens)
        self._begin(context, proposal.tokens, max_tokens)
        return proposal

    def observe(self, confirmed: Round) -> None:
        if self._has_prompts:
            self._meter.passed(confirmed.target_s / confirmed.num_steps)
        self._has_prompts = True  # From here on: the first round has paid for them.
        self._was_asked, self._is_asked = self._is_asked, False
        if self._num_offered:
            num_right = confirmed.num_accepted
            self._meter.judged(num_right, min(num_right + 1, self._num_offered))
        self._num_offered = 0
        self._drafter.observe(confirmed)

    def _ready(self, context: TokenIds) -> Proposal:
        """What the last call said behind `context`; nothing where the text went another way."""
        begun, call = self._context, self._call
        self._context = self._call = None
        if begun is None or call is None:
            return NO_PROPOSAL
        num_said = len(context) - len(begun)
        if num_said < 1 or not np.array_equal(context[: len(begun)], begun):
            if not call.cancel():
                self._abort()
            return NO_PROPOSAL
        found = call.result()
        said = tuple(context[len(begun) :].tolist())
        is_right = found.tokens[:num_said] == said
        if found.tokens:
            self._meter.judged(int(is_right), 1)
        if not is_right or len(found.tokens) == num_said:
            return NO_PROPOSAL
        return replace(found, tokens=found.tokens[num_said:], log_probs=found.log_probs[num_said:])

    def _begin(self, context: TokenIds, draft: tuple[int, ...], max_tokens: int) -> None:
        num_tokens = max_tokens - len(draft)  # The guess, and what may be drafted behind it.
        self._running = [each for each in self._running if not each.done()]
        if num_tokens < 2 or len(self._running) >= MAX_RUNNING:
            return
        self._context = np.concatenate((context, np.asarray(draft, dtype=np.int32)))
        is_measured = self._has_prompts
        self._call = self._executor.submit(self._run, self._context, num_tokens, is_measured)
        self._running.append(self._call)

    def _run(self, context: TokenIds, num_tokens: int, is_measured: bool) -> Proposal:
        start_s = self._clock()
        proposal = self._ahead.propose(context, num_tokens)
        if is_measured and proposal.tokens:  # A call that was ended has none.
            self._meter.called(len(proposal.tokens), self._clock() - start_s)
        return proposal
