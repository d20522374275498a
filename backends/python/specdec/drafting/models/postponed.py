"""The drafter whose draft model is asked later, in one call for all requests of a step."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class DraftCall:
    """A draft that a draft model has yet to make."""

    model: str
    context: TokenIds
    """Prompt and confirmed tokens, [n] int32; valid until the next round."""
    num_tokens: int
    """Most tokens of the draft."""
    cache_salt: str = ""
    """Only contexts with the same salt share prefixes in the model's KV cache."""


class PostponedDrafter:
    """A drafter that records a call of its draft model in place of a proposal."""

    def __init__(self, name: str, source: int, num_tokens: int, cache_salt: str) -> None:
        """Take the model's name, its number in `output_sources`, and most tokens of a draft.

        `cache_salt` is that of all calls (`DraftCall`).
        """
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._cache_salt = cache_salt
        self.call: DraftCall | None = None
        """The call to make; None if the drafter was not asked since the last round."""
        self.is_refused = False
        """Whether the model has refused the request. Contexts only grow, so it would again."""

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        if self.is_refused:
            return NO_PROPOSAL
        num_tokens = min(self._num_tokens, max_tokens)
        self.call = DraftCall(self._name, context, num_tokens, self._cache_salt)
        return NO_PROPOSAL

    def proposal(self, tokens: tuple[int, ...] | None) -> Proposal:
        """Return the proposal with the draft that the call has brought; None for a refusal."""
        self.call, self.is_refused = None, tokens is None
        return Proposal(tokens, self._name, self._source) if tokens else NO_PROPOSAL

    def observe(self, confirmed: Round) -> None:  # noqa: ARG002
        self.call = None
