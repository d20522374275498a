"""Proposes the tokens that a request's guide forces, such as keys and brackets of JSON."""

from __future__ import annotations

import numpy as np

from specdec.constraints.constraint import Constraint
from specdec.drafting.context import DrafterContext
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.errors import InvalidRequestError
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
        self._answer: TokenIds = np.zeros(0, dtype=np.int32)
        """The answer that `_forced` follows."""
        self._forced: list[int] = []

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        if self._constraint is None:
            return NO_PROPOSAL
        try:
            forced = self._after(context[self._num_prompt :], self._constraint)
        except InvalidRequestError:  # The target's own step reports it.
            return NO_PROPOSAL
        tokens = tuple(forced[: min(self._num_tokens, max_tokens)])
        return Proposal(tokens, self._name, self._source) if tokens else NO_PROPOSAL

    def _after(self, answer: TokenIds, constraint: Constraint) -> list[int]:
        """Return the tokens that must follow `answer` [n] int32.

        A long forced text is spelled once, and then followed.
        """
        known = np.concatenate((self._answer, np.asarray(self._forced, dtype=np.int32)))
        num_more = len(answer) - len(self._answer)
        is_within = 0 <= num_more < len(self._forced)
        if is_within and np.array_equal(known[: len(answer)], answer):
            return self._forced[num_more:]
        self._answer, self._forced = answer.copy(), constraint.forced(answer)
        return self._forced

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
