"""Engines and drafters that follow a script, for tests of the code around the models.

The target of these tests knows one text. It checks that each context is a beginning of this text,
so a rejected draft token that was kept would fail the test at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from specdec.acceptance.exact import verify_chain
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import Verification
from specdec.loop import Round

END_ID = 0
PROMPT = (7, 8, 9)
WRONG = 999
"""A token that no text of these tests contains."""


class KnowingTarget:
    """A target that generates `text` after the prompt, and then END_ID for ever.

    Its methods raise AssertionError if a context is not the prompt and a beginning of the text.

    Attributes:
        num_passes: number of verification calls so far.
        drafts: the draft tokens of each of them.
        num_streamed: number of tokens that were streamed so far.
        stream_closed: whether a streaming call has ended.
    """

    def __init__(self, text: Sequence[int], prompt: Sequence[int] = PROMPT) -> None:
        self._text = tuple(text)
        self._prompt = tuple(prompt)
        self.num_passes = 0
        self.drafts: list[tuple[int, ...]] = []
        self.num_streamed = 0
        self.stream_closed = False

    def verify(self, context, draft):
        """Verify a chain as a real engine does: the end token cuts the result."""
        self.num_passes += 1
        draft = draft.tokens
        self.drafts.append(draft)
        position = self._position(context)
        choices = [self._next(position + offset) for offset in range(len(draft) + 1)]
        tokens = verify_chain(draft, choices).tokens
        ended = END_ID in tokens
        return Verification(tokens[: tokens.index(END_ID)] if ended else tokens, ended)

    def stream(self, context, max_tokens):
        """Yield one token per response; the end of the text is a response without tokens."""
        position = self._position(context)
        try:
            for offset in range(max_tokens):
                token = self._next(position + offset)
                if token == END_ID:
                    yield Verification((), ended=True)
                    return
                self.num_streamed += 1
                yield Verification((token,), ended=False)
        finally:
            self.stream_closed = True

    def _position(self, context) -> int:
        tokens = tuple(context.tolist())
        assert tokens[: len(self._prompt)] == self._prompt
        position = len(tokens) - len(self._prompt)
        assert tokens[len(self._prompt) :] == self._text[:position], "an unconfirmed token was kept"
        return position

    def _next(self, position: int) -> int:
        return self._text[position] if position < len(self._text) else END_ID


class ScriptedDrafter:
    """A drafter that proposes chains of up to `k` tokens by a rule.

    `token_at(position)` is the rule. It returns the draft token for a position of the answer,
    counted from 0, or None to end the draft there.

    Attributes:
        asked: (context length, most tokens) of each call of `propose`.
        observed: each round that it was told of.
    """

    def __init__(
        self,
        k: int,
        token_at: Callable[[int], int | None],
        *,
        source: int = 1,
        prompt: Sequence[int] = PROMPT,
    ) -> None:
        self._k = k
        self._token_at = token_at
        self._source = source
        self._num_prompt = len(prompt)
        self.asked: list[tuple[int, int]] = []
        self.observed: list[Round] = []

    def propose(self, context, max_tokens):
        """Propose up to k tokens, as many as the rule gives."""
        assert max_tokens >= 1
        self.asked.append((len(context), max_tokens))
        tokens = tuple(
            self._draft_tokens(len(context) - self._num_prompt, min(self._k, max_tokens))
        )
        return Proposal(tokens, "scripted", self._source) if tokens else NO_PROPOSAL

    def observe(self, confirmed: Round) -> None:
        """Remember the round."""
        self.observed.append(confirmed)

    def _draft_tokens(self, position: int, count: int) -> Iterator[int]:
        for offset in range(count):
            token = self._token_at(position + offset)
            if token is None:
                return
            yield token


def always_accepted(text: Sequence[int]) -> Callable[[int], int | None]:
    """Return a rule whose tokens the target always accepts, its end token included."""
    return lambda position: text[position] if position < len(text) else END_ID


def never_accepted(_position: int) -> int | None:
    """Return a token that the target never generates, for any position."""
    return WRONG


def accepted_except(text: Sequence[int], wrong_positions: set[int]) -> Callable[[int], int | None]:
    """Return a rule whose tokens the target accepts, except at some positions of the answer."""
    accepted = always_accepted(text)
    return lambda position: WRONG if position in wrong_positions else accepted(position)


def make_round(
    tokens=(1,),
    *,
    drafted=0,
    accepted=0,
    drafter=None,
    draft_s=0.0,
    target_s=0.01,
    next_drafts=(),
    next_parents=(),
):
    """Return a Round as the loop reports it; `drafted` and `accepted` count draft tokens."""
    return Round(
        tokens=tuple(tokens),
        num_draft_tokens=drafted,
        num_accepted=accepted,
        drafter=drafter,
        accepted_sources=(1,) * accepted,
        ended=False,
        draft_s=draft_s,
        target_s=target_s,
        next_drafts=tuple(next_drafts),
        next_parents=tuple(next_parents),
    )
