"""Predicted output: the client says what the answer will mostly repeat (OpenAI's `prediction`)."""

from __future__ import annotations

from specdec.drafting.matching import longest_matches
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class PredictionDrafter:
    """Copies the prediction from its start, and after a deviation from where it is met again."""

    def __init__(
        self, name: str, source: int, num_tokens: int, prediction: TokenIds, num_prompt: int
    ) -> None:
        """`num_prompt`: tokens of the context that are no output."""
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._prediction = prediction
        self._num_prompt = num_prompt
        self._place: int | None = 0
        """Where in the prediction the output stands; None when it has left it."""

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        if self._place is None:
            self._place = self._met_again(context[self._num_prompt :])
        if self._place is None:
            return NO_PROPOSAL
        size = min(self._num_tokens, max_tokens)
        tokens = tuple(self._prediction[self._place : self._place + size].tolist())
        return Proposal(tokens, self._name, self._source) if tokens else NO_PROPOSAL

    def observe(self, confirmed: Round) -> None:
        if self._place is None:
            return
        end = self._place + len(confirmed.tokens)
        follows = tuple(self._prediction[self._place : end].tolist()) == confirmed.tokens
        self._place = end if follows else None

    def _met_again(self, output: TokenIds) -> int | None:
        ends, _ = longest_matches(self._prediction, output)
        return int(ends[0]) if len(ends) else None
