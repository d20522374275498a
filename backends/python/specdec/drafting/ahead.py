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

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round

MAX_RUNNING = 2
"""Calls ahead of one request: the newest, and one that is being ended. An engine that hangs gets no
more of them."""

SHORT_DRAFT = 0.7
"""Of a target pass: a call ahead that takes no longer is worth waiting for when nothing is ready.
A plain pass gains one token in a pass, a draft the pass's many tokens in a pass and its own time;
`specdec bench overlap` shows what either comes to."""


class AheadDrafter:
    """Asks `ahead` on another thread for what comes behind the proposal that it returns."""

    def __init__(
        self,
        drafter: Drafter,
        ahead: Drafter,
        abort: Callable[[], None],
        executor: Executor,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Both propose chains without logits; `ahead` one token more than `drafter`, on any thread.

        `abort` ends the newest call of `ahead`.
        """
        self._drafter = drafter
        self._ahead = ahead
        self._abort = abort
        self._executor = executor
        self._clock = clock
        self._context: TokenIds | None = None
        self._call: Future[Proposal] | None = None
        self._running: list[Future[Proposal]] = []
        self._has_prompts = False
        self._is_asked, self._was_asked = False, True
        self._pass_s: float | None = None
        self._call_s: float | None = None

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        proposal = self._ready(context)
        # Who is asked now and then may not be asked for what a call ahead will have said.
        may_wait = self._was_asked and not self._is_draft_short()
        self._is_asked = True
        if not proposal.tokens and not may_wait:
            proposal = self._drafter.propose(context, max_tokens)
        self._begin(context, proposal.tokens, max_tokens)
        return proposal

    def observe(self, confirmed: Round) -> None:
        if self._has_prompts:
            self._pass_s = confirmed.target_s
        self._has_prompts = True  # From here on: the first round has paid for them.
        self._was_asked, self._is_asked = self._is_asked, False
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
        if found.tokens[:num_said] != said or len(found.tokens) == num_said:
            return NO_PROPOSAL
        return replace(found, tokens=found.tokens[num_said:], log_probs=found.log_probs[num_said:])

    def _is_draft_short(self) -> bool:
        """Unmeasured it is long: at first both engines work on the prompt, side by side."""
        if self._pass_s is None or self._call_s is None:
            return False
        return self._call_s <= SHORT_DRAFT * self._pass_s

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
            self._call_s = self._clock() - start_s
        return proposal
