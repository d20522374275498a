"""The drafter `auto`: it carries out the controller's choice, and uses copied drafts if it can."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from specdec.drafting.candidates import EngineCandidate, HeadCandidate
from specdec.drafting.copying.choosing import better_copy
from specdec.drafting.copying.prediction import PredictionDrafter
from specdec.drafting.models.head import HeadDrafter
from specdec.drafting.models.postponed import DraftCall, PostponedDrafter
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import (
    COPIES,
    LONG_COPIES,
    Candidate,
    Choice,
    EstimatedDrafter,
)
from specdec.steering.copying import CopyWatch, copy_result
from specdec.steering.request_steering import RequestSteering, RoundResult
from specdec.token_ids import TokenIds


class SteeredDrafter:
    """A drafter that carries out a request's choices (`RequestSteering`), and reports the results.

    In each round with speculation it asks the copy drafters first:

    - If the head is chosen, its draft is there already. A copy replaces the draft only if it is
      longer than the draft and than SHORT_COPY tokens.
    - If a draft engine is chosen, it is asked only if there is no copy.
    - Tokens that the request's guide forces count as a copy. They replace any other draft that
      does not begin with them.

    During a trial of another drafter the head reads along: it processes the tokens without
    drafting, so that it can draft later. After any other round without the head, it drafts no more
    in this request, because it would first have to read the tokens that it missed.
    """

    def __init__(
        self,
        steering: RequestSteering,
        copying: Sequence[Drafter],
        engines: Mapping[str, EngineCandidate],
        heads: Mapping[str, HeadCandidate],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take the controller's part for this request and the drafters that it may choose.

        `copying` are the copy drafters, best first: the first proposal that is long enough is used.
        `engines` and `heads` are by name. All entries of `heads` are shapes of the target's one
        head. `clock` returns seconds.
        """
        self._steering = steering
        self._copying = copying
        self._engines = engines
        self._heads = heads
        self._head = HeadDrafter(next(iter(heads.values())).shape) if heads else None
        self._clock = clock
        self._ended_s = clock()
        self._context: TokenIds = np.empty(0, dtype=np.int32)
        self._num_left = 0
        """Most tokens that a draft after `_context` may have."""
        self._confirmed: list[int] = []
        """Tokens confirmed after `_context`."""
        self._num_context = 0
        self._num_rounds = 0
        self._has_read = True
        """Whether the head has read the whole context, and so can draft; True without a head."""
        self._is_prompt_read = False
        """Whether the target had read the prompt before the first choice."""
        self._choice: Choice | None = None
        """Choice for the running round; None if `propose` was not called for it."""
        self._proposal = NO_PROPOSAL
        self._is_copy = False
        self._num_asked: int | None = None
        """Draft tokens that the head is asked for in the running round; see `Draft.num_next`."""
        self._was_asked: int | None = None
        """Draft tokens that the head was asked for in the previous round."""
        self._num_streamed = 0
        """Tokens generated without speculation since the last choice."""
        self._watch = CopyWatch()
        self._is_watching = False
        """Whether `_watch` knows where the answer begins."""
        # The prediction drafter has state and cannot be asked about an earlier position.
        self._has_prediction = any(isinstance(each, PredictionDrafter) for each in copying)
        self._can_look_back = bool(copying) and steering.looks_back and not self._has_prediction
        self._has_looked_back = False
        """Whether the running round began with a look back, so that its time is no fair sample."""

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        self._num_context = len(context)
        if self._num_rounds and not self._is_watching:
            self._begin_watch()
        self._context, self._num_left, self._confirmed = context.copy(), max_tokens, []
        self._has_looked_back = self._steering.is_due and self._look_back()
        choice = self._steering.choose(len(context), max_tokens + 1, can_read=self._has_read)
        self._choice = choice
        self._was_asked, self._num_asked = self._num_asked, None
        self._is_copy, self._proposal = False, NO_PROPOSAL
        self._num_streamed = 0
        if choice.is_off:
            self._has_read = False
            return Proposal(num_plain=self._steering.num_plain or max_tokens + 1)
        self._proposal = self._best(context, max_tokens, choice)
        return self._proposal

    @property
    def postponed(self) -> DraftCall | None:
        """The call of a draft model that the last proposal waits for; None if it is complete."""
        chosen = self._postponed_drafter()
        return None if chosen is None else chosen.call

    def complete(self, tokens: tuple[int, ...] | None) -> Proposal:
        """Return the last proposal with the draft of `postponed`; None: the model refuses it."""
        chosen, own = self._postponed_drafter(), self._proposal
        if chosen is not None:
            found = chosen.proposal(tokens)
            self._proposal = replace(found, num_next=own.num_next, next_depth=own.next_depth)
        return self._proposal

    def _postponed_drafter(self) -> PostponedDrafter | None:
        choice = self._choice
        engine = None if choice is None else self._engines.get(choice.drafter)
        drafter = None if engine is None else engine.drafter
        return drafter if isinstance(drafter, PostponedDrafter) else None

    def observe(self, confirmed: Round) -> None:
        now_s = self._clock()
        seconds, self._ended_s = now_s - self._ended_s, now_s
        for drafter in self._copying:
            drafter.observe(confirmed)
        for engine in self._engines.values():
            engine.drafter.observe(confirmed)
        if self._head is not None:
            self._head.observe(confirmed)
        choice, num_tokens = self._choice, len(confirmed.tokens)
        if choice is None:
            self._is_prompt_read = self._is_prompt_read or not self._num_rounds
        else:
            self._steering.learn_round(self._round_result(confirmed, seconds, choice))
            if choice.is_off:
                self._num_streamed += num_tokens
            else:
                self._choice = None
        self._confirmed += confirmed.tokens
        self._num_rounds += 1
        self._num_context += num_tokens
        if self._num_rounds == 1 and choice is not None:
            self._begin_watch()

    def withdraw(self) -> None:
        """Take note that the engine went on without the proposal of the running round."""
        self._choice, self._num_asked, self._proposal = None, None, NO_PROPOSAL
        # The head did not run, so it misses tokens.
        self._has_read = self._head is None

    def close(self, *, is_complete: bool) -> None:
        """Tell the controller that the request is over.

        If `is_complete`, the request ran to its end, and the controller also learns its speed.
        """
        try:
            if is_complete:
                self._look_back()
                self._steering.finish()
        finally:
            self._steering.leave()

    def _begin_watch(self) -> None:
        self._watch.begin(self._num_context)
        self._is_watching = True

    def _best(self, context: TokenIds, max_tokens: int, choice: Choice) -> Proposal:
        """Return a copy if one is long enough, else the draft of the chosen drafter."""
        own = self._from_head(context, max_tokens, choice)
        self._num_asked = own.num_next
        copied = better_copy(own, self._copying, context, max_tokens)
        if copied is not None:
            self._is_copy = True
            return replace(copied, num_next=own.num_next, next_depth=own.next_depth)
        if choice.drafter in self._engines:
            engine = self._engines[choice.drafter]
            found = engine.drafter.propose(context, min(max_tokens, choice.num_tokens))
            return replace(found, num_next=own.num_next, next_depth=own.next_depth)
        return own

    def _look_back(self) -> bool:
        """Report what the copy drafters would have proposed for the latest tokens.

        Return whether the copy drafters were asked. A look back costs no pass, so the controller
        learns about copies from rounds of any drafter.
        """
        num_tokens = self._steering.draw_num_to_look_back() if self._can_look_back else 0
        if not (num_tokens and self._is_watching):
            return False
        text = np.concatenate([self._context, np.asarray(self._confirmed, dtype=np.int32)])

        def find(position: int) -> list[tuple[int, int]]:
            """Return (draft tokens, accepted ones) of each copy drafter at `position`."""
            following = tuple(text[position:].tolist())
            num_left = self._num_left - len(self._confirmed) + len(following)
            proposals = [each.propose(text[:position], num_left) for each in self._copying]
            return [(len(each.tokens), len(each.draft.path(following))) for each in proposals]

        self._steering.learn_copies(self._watch.look_back(len(text), num_tokens, find))
        return True

    def _from_head(self, context: TokenIds, max_tokens: int, choice: Choice) -> Proposal:
        """Return the head's draft, and ask for its draft for the next round.

        If the head is not chosen, the proposal has no tokens. The head is then asked to read along
        during a trial, and otherwise does not run.
        """
        if self._head is None or not self._has_read:
            return NO_PROPOSAL
        if choice.drafter in self._heads:
            shape = self._heads[choice.drafter].shape
            self._head.shape = replace(shape, num_tokens=choice.num_tokens)
            return self._head.propose(context, max_tokens)
        if self._steering.is_trial:
            return Proposal(num_next=0)
        self._has_read = False
        return NO_PROPOSAL

    def _round_result(self, confirmed: Round, seconds: float, choice: Choice) -> RoundResult:
        num_tokens = len(confirmed.tokens)
        if choice.is_off:
            # The time of the first step includes the start of the call.
            is_clean = self._num_streamed > 0
            return RoundResult(
                seconds,
                num_tokens,
                self._num_context,
                is_clean=is_clean,
                has_head=None if self._is_prompt_read else False,
            )
        candidate, num_draft_tokens = self._candidate_of_round(choice)
        is_read = self._num_asked is not None
        has_head = True if choice.drafter in self._heads else None if is_read else False
        return RoundResult(
            seconds,
            num_tokens,
            self._num_context,
            draft_results=() if confirmed.ended else self._draft_results(confirmed, choice),
            num_rows=1 + confirmed.num_draft_tokens,
            candidate=candidate,
            num_draft_tokens=num_draft_tokens,
            draft_s=confirmed.draft_s if candidate and not candidate.is_head else 0.0,
            is_clean=(not is_read or num_draft_tokens > 0) and not self._has_looked_back,
            has_head=None if self._is_prompt_read else has_head,
        )

    def _candidate_of_round(self, choice: Choice) -> tuple[Candidate | None, int]:
        """Return the head or engine that drafted during the round, and its number of tokens.

        A head drafts for the next round, an engine for this one. If neither drafted, return None
        and 0.
        """
        if choice.drafter in self._heads and self._num_asked is not None:
            return self._heads[choice.drafter].candidate, self._num_asked
        if choice.drafter in self._engines and not self._is_copy and self._num_rounds:
            return self._engines[choice.drafter].candidate, len(self._proposal.tokens)
        return None, 0

    def _draft_results(self, confirmed: Round, choice: Choice) -> tuple[DraftResult, ...]:
        """Return the numbers of proposed and accepted tokens of the drafters that were asked.

        If the request has a prediction, one more entry covers all copy drafters, because
        `_look_back` then reports nothing.
        """
        if self._proposal.tokens and not confirmed.num_draft_tokens:
            return ()  # An engine may verify no draft token, for example if its step is full.
        depth = min(max(self._proposal.depths, default=0), confirmed.num_draft_tokens)
        counts = confirmed.num_draft_tokens, depth, confirmed.num_accepted
        nothing = 0, 0, 0
        results: list[DraftResult] = []
        if self._has_prediction and self._num_rounds:
            copied = (depth, confirmed.num_accepted) if self._is_copy else (0, 0)
            copies = LONG_COPIES if choice.drafter in self._heads else COPIES
            results.append(copy_result(copies, len(confirmed.tokens), *copied))
        drafter = self._proposal.drafter
        if drafter is not None:  # A copy drafter, the engine, or the head asked in the last round.
            results.append(DraftResult(EstimatedDrafter(drafter), *counts))
        elif not self._is_copy and self._was_drafter_asked(choice):
            results.append(DraftResult(EstimatedDrafter(choice.drafter), *nothing))
        return tuple(results)

    def _was_drafter_asked(self, choice: Choice) -> bool:
        if choice.drafter in self._heads:
            return bool(self._was_asked)
        return choice.drafter in self._engines and self._num_rounds > 0
