"""A target that is spared draft tokens that the request's guide forbids."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from specdec.constraints.constraint import Constraint
from specdec.engines.protocol import Draft, TargetEngine, Verification
from specdec.token_ids import TokenIds


class ConstrainedTarget:
    """A `TargetEngine` that cuts drafts before the target sees them, so that no row is wasted."""

    def __init__(self, target: TargetEngine, constraint: Constraint, num_prompt: int) -> None:
        """Take the target, the request's constraint, and the number of prompt tokens."""
        self._target = target
        self._constraint = constraint
        self._num_prompt = num_prompt

    def verify(self, context: TokenIds, draft: Draft) -> Verification:
        allowed = self._cut(context[self._num_prompt :], draft)
        found = self._target.verify(context, allowed)
        if found.num_draft_tokens is None and len(allowed.tokens) < len(draft.tokens):
            # The loop would count those that were cut as rejected.
            return replace(found, num_draft_tokens=len(allowed.tokens))
        return found

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        return self._target.stream(context, max_tokens)

    def _cut(self, answer: TokenIds, draft: Draft) -> Draft:
        """Return the draft without tokens that may not follow `answer` [n] int32."""
        if draft.parents:
            return self._cut_tree(answer, draft)
        size = self._constraint.num_allowed(answer, draft.tokens)
        if size == len(draft.tokens):
            return draft
        logits = None if draft.logits is None else draft.logits[:size]
        return replace(draft, tokens=draft.tokens[:size], logits=logits)

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
            logits=None if draft.logits is None else draft.logits[kept],
            parents=tuple(number_of[draft.parents[node]] for node in kept),
        )
