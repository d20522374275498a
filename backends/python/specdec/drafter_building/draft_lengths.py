"""Decide how many draft tokens each drafter of a request may propose in a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specdec.drafting.models.head import TREE_DEPTH, HeadShape
from specdec.drafting.registry import HEAD_TREE, DrafterId
from specdec.settings.drafters import DrafterSettings
from specdec.steering.choices import COPY_CHOICE, OFF_CHOICE, Candidate, Choice

MAX_CHOSEN_TOKENS = 6
"""Most draft tokens per round that the controller requests of a draft model or of a head's chain. A
request may ask for more. With `draft_ahead`, draft models always draft `num_draft_tokens`."""


@dataclass(frozen=True, slots=True)
class DraftLengths:
    """The draft lengths of one request, from its own fields and from the settings."""

    drafters: DrafterSettings
    max_draft_len: int
    """Most draft tokens in a round that the target verifies."""
    asked: int | None
    """Draft tokens in a round that the request asks for; None if it leaves them open."""
    is_auto: bool
    """Whether the controller chooses the request's drafter."""
    takes_trees: bool
    """Whether the engines and the request's verification mode take trees."""

    @property
    def draft_model(self) -> int:
        """Draft tokens of a draft model in a round if the controller does not decide."""
        return self._limited(self.drafters.num_draft_tokens)

    @property
    def draft_model_limit(self) -> int:
        """Most draft tokens that a draft model may be asked for in a round."""
        if self.is_auto and self.asked is None:
            return self.draft_model if self.drafters.draft_ahead else self._max_chosen
        return self.draft_model

    @property
    def copy(self) -> int:
        """Draft tokens of drafters that cost no pass."""
        return self._limited(self.drafters.lookup_num_draft_tokens)

    @property
    def long_copy(self) -> int:
        """Draft tokens of lookup after a long match."""
        return self._limited(self.drafters.lookup_max_draft_tokens)

    @property
    def _max_chosen(self) -> int:
        return min(MAX_CHOSEN_TOKENS, self.max_draft_len)

    def _limited(self, configured: int) -> int:
        """Return the request's own draft length, else `configured`, cut to `max_draft_len`."""
        return min(self.asked or configured, self.max_draft_len)

    def shape(self, head: DrafterId) -> HeadShape:
        """Return the shape of the head's draft: a chain or a tree, and k."""
        is_tree = head.kind is HEAD_TREE and self.takes_trees
        configured = (
            self.drafters.head_tree_num_draft_tokens
            if is_tree
            else self.drafters.head_num_draft_tokens
        )
        return HeadShape(head.name, head.source, self._limited(configured), is_tree)

    def candidate(self, drafter: DrafterId) -> Candidate:
        """Return the draft lengths that the controller may choose for a draft model or head."""
        lengths = tuple(range(1, self._max_chosen + 1))
        if drafter.is_head:
            shape = self.shape(drafter)
            if self.asked is not None or shape.is_tree:
                lengths = (shape.num_tokens,)
            depth = TREE_DEPTH if shape.is_tree else None
            return Candidate(drafter.name, lengths, depth, is_head=True)
        if self.asked is not None or self.drafters.draft_ahead:
            lengths = (self.draft_model,)
        return Candidate(drafter.name, lengths)

    def choice(self, drafter: DrafterId) -> Choice:
        """Return the choice of a drafter before measurements."""
        if drafter.kind.is_free:
            return COPY_CHOICE
        if drafter.is_head:
            return Choice(drafter.name, self.shape(drafter).num_tokens)
        return Choice(drafter.name, self.draft_model)

    def default(self, drafters: Iterable[DrafterId], candidates: Sequence[Candidate]) -> Choice:
        """Return the request's choice before measurements: its best candidate, copies, or off.

        `drafters` are those of the request, and `candidates` its heads and draft models, best
        first.
        """
        by_name = {each.name: each for each in drafters}
        if candidates:
            return self.choice(by_name[candidates[0].name])
        has_copies = any(each.kind.is_free for each in by_name.values())
        return COPY_CHOICE if has_copies and max(self.copy, self.long_copy) else OFF_CHOICE
