"""Copies from a text that the client expects the answer to repeat (OpenAI's `prediction`)."""

from __future__ import annotations

from specdec.drafting.context import DrafterContext
from specdec.drafting.copying.matching import longest_matches
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds


class PredictionDrafter:
    """A drafter that copies the prediction from its beginning on.

    When the answer deviates, the drafter looks for the answer's end in the prediction. It continues
    after the longest match, and the first of several.
    """

    def __init__(
        self, name: str, source: int, num_tokens: int, prediction: TokenIds, num_prompt: int
    ) -> None:
        """Take the prediction [n] int32 and the number of prompt tokens.

        The prediction is in the target's tokens. A proposal has up to `num_tokens` tokens.
        """
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._prediction = prediction
        self._num_prompt = num_prompt
        self._position: int | None = 0
        """Index in the prediction of the next token to propose; None after a deviation."""

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        if self._position is None:
            self._position = self._find_again(context[self._num_prompt :])
        if self._position is None:
            return NO_PROPOSAL
        size = min(self._num_tokens, max_tokens)
        tokens = tuple(self._prediction[self._position : self._position + size].tolist())
        return Proposal(tokens, self._name, self._source) if tokens else NO_PROPOSAL

    def observe(self, confirmed: Round) -> None:
        if self._position is None:
            return
        end = self._position + len(confirmed.tokens)
        follows = tuple(self._prediction[self._position : end].tolist()) == confirmed.tokens
        self._position = end if follows else None

    def _find_again(self, output: TokenIds) -> int | None:
        ends, _ = longest_matches(self._prediction, output)
        return int(ends[0]) if len(ends) else None


def build(context: DrafterContext) -> Drafter:
    """Return the prediction drafter of a request."""
    return PredictionDrafter(
        context.name,
        context.source,
        context.num_tokens,
        context.prediction(),
        len(context.prompt),
    )
