"""Proposes the tokens that a request's guide forces, such as keys and brackets of JSON."""

from __future__ import annotations

from specdec.constraints.constraint import Constraint
from specdec.drafting.context import DrafterContext
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds


class GrammarDrafter:
    """A drafter that asks a constraint which text must come next.

    The guide fixes the text, and the draft spells it as the tokenizer does. The target may spell it
    otherwise, so these tokens are verified as any others.
    """

    def __init__(
        self,
        name: str,
        source: int,
        num_tokens: int,
        constraint: Constraint | None,
        num_prompt: int,
    ) -> None:
        """Take the request's constraint; None for a request without a guide."""
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._constraint = constraint
        self._num_prompt = num_prompt

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        if self._constraint is None:
            return NO_PROPOSAL
        forced = self._constraint.forced(context[self._num_prompt :])
        tokens = tuple(forced[: min(self._num_tokens, max_tokens)])
        return Proposal(tokens, self._name, self._source) if tokens else NO_PROPOSAL

    def observe(self, confirmed: Round) -> None:
        """Do nothing: the confirmed tokens are in the next context."""


def build(context: DrafterContext) -> Drafter:
    """Return the grammar drafter of a request."""
    return GrammarDrafter(
        context.name,
        context.source,
        context.max_tokens,
        context.constraint(),
        len(context.prompt),
    )
