"""Cut draft tokens that the guide forbids before the target verifies them.

Only drafts that were copied, or that are compared with the target's own choice, may be cut. A draft
that was drawn and is verified by probabilities must stay whole: if a draw decided by its value how
much is verified, the rules would not keep the target's distribution. A draft model draws under the
same guide, so its draws are seldom forbidden.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace

from specdec.constraints.constraint import Constraint
from specdec.engines.protocol import Draft, TargetEngine, Verification, num_draft_tokens_of
from specdec.errors import InvalidRequestError
from specdec.token_ids import TokenIds


class CuttingTarget:
    """A `TargetEngine` that cuts drafts before the target sees them, so that no row is wasted."""

    def __init__(self, target: TargetEngine, constraint: Constraint, num_prompt: int) -> None:
        """Take the target, the request's constraint, and the number of prompt tokens."""
        self._target = target
        self._constraint = constraint
        self._num_prompt = num_prompt

    def verify(self, context: TokenIds, draft: Draft) -> Verification:
        allowed = draft
        # Verification by probabilities needs the logits of drawn tokens, and of no others.
        if draft.logits is None:
            with suppress(InvalidRequestError):  # The target's own step reports it.
                allowed = self._cut(context[self._num_prompt :], draft)
        found = self._target.verify(context, allowed)
        if len(allowed.tokens) == len(draft.tokens):
            return found
        # The first token that was cut counts as rejected, so that the controller hears of it.
        num_verified = num_draft_tokens_of(allowed, found)
        return replace(found, num_draft_tokens=num_verified + 1)

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        return self._target.stream(context, max_tokens)

    def _cut(self, answer: TokenIds, draft: Draft) -> Draft:
        """Return the draft without tokens that may not follow `answer` [n] int32."""
        if draft.parents:
            return self._cut_tree(answer, draft)
        size = self._constraint.num_allowed(answer, draft.tokens)
        return replace(draft, tokens=draft.tokens[:size]) if size < len(draft.tokens) else draft

    def _cut_tree(self, answer: TokenIds, draft: Draft) -> Draft:
        paths: list[tuple[int, ...]] = []
        kept: list[int] = []
        number_of = {-1: -1}
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            path = (*(paths[parent] if parent >= 0 else ()), token)
            paths.append(path)
            is_reached = parent in number_of
            if is_reached and self._constraint.num_allowed(answer, path) == len(path):
                number_of[node] = len(kept)
                kept.append(node)
        if len(kept) == len(draft.tokens):
            return draft
        return replace(
            draft,
            tokens=tuple(draft.tokens[node] for node in kept),
            parents=tuple(number_of[draft.parents[node]] for node in kept),
        )
