"""A request in the engine's batch: its drafter, and the results of its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from specdec.batch_drafting.options import DraftingOptions
from specdec.drafting.models.postponed import DraftCall
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.drafting.steered import SteeredDrafter
from specdec.loop import Context
from specdec.rounds import Round
from specdec.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class RequestStart:
    """A request that begins."""

    request_id: str
    prompt: TokenIds
    """[n ≥ 1] int32."""
    options: DraftingOptions
    """Its `max_tokens` must fit the engine's limit: a buffer of that size is made."""


@dataclass(frozen=True, slots=True)
class RequestStep:
    """The result of one step of the engine for one request."""

    request_id: str
    tokens: tuple[int, ...]
    """Confirmed tokens: the accepted draft tokens, then the target's own; none while the engine
    still reads the prompt."""
    num_verified: int | None = None
    """Draft tokens that the step verified; None if it verified all proposed ones."""
    own_draft: tuple[int, ...] = ()
    """Draft tokens that the engine's own drafter, such as an EAGLE-3 head, proposes after
    `tokens`."""
    ended: bool = False
    """Whether the target then generated its end token, which is not among `tokens`."""


@dataclass(frozen=True, slots=True)
class StepDrafts:
    """The answer to one step; its tuples have one entry for each request, in the step's order."""

    proposals: tuple[Proposal, ...]
    """Draft tokens for the next step; none for a plain step."""
    rounds: tuple[Round | None, ...]
    """The rounds that the step confirmed; None for a request that is unknown or whose prompt is
    still being read."""
    num_own_draft: int | None
    """Most draft tokens that any request can use of the engine's own drafter after the next step. 0
    if it only needs to read along, None if it need not run."""


def _num_equal(tokens: tuple[int, ...], draft: tuple[int, ...]) -> int:
    """Return how many tokens at the beginning of both are equal.

    An engine may confirm more than the draft and one token: it may pad drafts to one length, or
    report several steps at once.
    """
    pairs = zip(tokens, draft, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class RoundClock:
    """The clock of a request's drafter; it shows the end of the round being observed."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now_s


BuildDrafter = Callable[[DraftingOptions, TokenIds, RoundClock], Drafter | None]
"""Function that builds the drafter of a request from its options and its prompt [n] int32; it
returns None if there is to be none."""


class BatchRequest:
    """The drafter of one request, and the tokens that it has seen.

    `confirm` and `record_proposal` belong to the engine's thread. All else belongs to the drafting
    thread, which may miss steps.
    """

    def __init__(self, options: DraftingOptions, prompt: TokenIds, now_s: float) -> None:
        """Take the request's options and its prompt [n ≥ 1] int32."""
        self.options = options
        self.built_s: float | None = None
        """Time when the drafter was built; None before."""
        self.drafter: Drafter | None = None
        """The request's drafter; None before it is built, and after it failed."""
        self.is_reading = True
        """Whether the engine still reads the prompt."""
        self._context = Context(prompt, options.max_tokens)
        self._clock = RoundClock(now_s)
        self._num_plain = 0
        """Tokens that the drafter wants to be generated without speculation."""
        self._unseen: deque[tuple[Round, float]] = deque()
        """Rounds that the drafter has not seen, and when each ended."""
        self._proposed = NO_PROPOSAL
        """The proposal that the next step verifies."""
        self._confirmed_s = now_s
        """Time at the end of the last step that gave tokens."""

    @property
    def tokens(self) -> TokenIds:
        """The prompt and the tokens that the drafter has seen, [n] int32."""
        return self._context.tokens

    @property
    def is_at_prompt(self) -> bool:
        """Whether the drafter has seen no generated token."""
        return self._context.num_left == self.options.max_tokens

    def confirm(self, step: RequestStep, now_s: float, draft_s: float) -> Round | None:
        """Take the result of a step; return it as a round, or None while the prompt is read.

        `now_s` is the time at its end, and `draft_s` the seconds for which the step before it
        waited for draft tokens.
        """
        if not (step.tokens or step.ended):
            return None
        # The draft that follows the prompt is there anyway if the own drafter has read along.
        num_own = len(step.own_draft) if self.is_reading else self._proposed.num_next or 0
        self.is_reading = False
        proposed, self._proposed = self._proposed, NO_PROPOSAL
        most = len(step.tokens) - (not step.ended)
        num_accepted = min(most, _num_equal(step.tokens, proposed.tokens))
        num_verified = len(proposed.tokens) if step.num_verified is None else step.num_verified
        seconds, self._confirmed_s = now_s - self._confirmed_s, now_s
        confirmed = Round(
            tokens=step.tokens,
            num_draft_tokens=num_verified,
            num_accepted=num_accepted,
            drafter=proposed.drafter if num_verified else None,
            accepted_sources=proposed.sources_of(step.tokens[:num_accepted]),
            ended=step.ended,
            draft_s=draft_s,
            target_s=max(0.0, seconds - draft_s),
            next_drafts=step.own_draft[: self._limited(num_own)],
        )
        self._unseen.append((confirmed, now_s))
        return confirmed

    def _limited(self, num_tokens: int) -> int:
        asked = self.options.num_draft_tokens
        return num_tokens if asked is None else min(num_tokens, asked)

    def record_proposal(self, proposal: Proposal) -> None:
        """Record the proposal that the next step verifies."""
        self._proposed = proposal

    def propose(self, build: BuildDrafter, now_s: float) -> Proposal:
        """Tell the drafter of all rounds since the last call, and return its proposal.

        The first call builds the drafter. It should come before the engine reads the prompt: the
        proposal then says whether the engine's own drafter reads along, and its draft tokens are
        left out. Exceptions of the drafter pass through.
        """
        if self.built_s is None:
            self.built_s = now_s
            self.drafter = build(self.options, self._context.tokens, self._clock)
            if self._unseen:
                self.withdraw()  # The engine has read the prompt without its own drafter.
        self.observe_all()
        max_tokens = self._context.num_left - 1
        if self.drafter is None or self._num_plain > 0 or max_tokens < 1:
            return NO_PROPOSAL
        found = self.drafter.propose(self._context.tokens, max_tokens)
        self._num_plain = found.num_plain
        return NO_PROPOSAL if found.num_plain else found

    @property
    def postponed(self) -> DraftCall | None:
        """The call of a draft model that the last proposal waits for; None without one."""
        drafter = self.drafter
        if self.is_at_prompt or not isinstance(drafter, SteeredDrafter):
            return None
        return drafter.postponed

    def complete(self, tokens: tuple[int, ...] | None) -> Proposal:
        """Return the last proposal with the draft of `postponed`; None: the model refuses it."""
        assert isinstance(self.drafter, SteeredDrafter), "only such drafters postpone a call"
        return self.drafter.complete(tokens)

    def withdraw(self) -> None:
        """Tell the drafter that the engine went on without its last proposal."""
        if isinstance(self.drafter, SteeredDrafter) and self._num_plain <= 0:
            self.drafter.withdraw()

    def observe_all(self) -> None:
        """Tell the drafter of all rounds that it has not seen. Its exceptions pass through."""
        while self._unseen:
            confirmed, self._clock.now_s = self._unseen.popleft()
            self._num_plain -= len(confirmed.tokens)
            self._context.append(confirmed.tokens[: self._context.num_left])
            if self.drafter is not None:
                self.drafter.observe(confirmed)
