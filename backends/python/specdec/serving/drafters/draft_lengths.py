"""Decide how many draft tokens each drafter of a request may propose in a round."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.acceptance.modes import REJECTION
from specdec.drafting.models.head import TREE_DEPTH, HeadShape
from specdec.drafting.names import AUTO
from specdec.drafting.registry import HEAD_TREE, DrafterId
from specdec.serving.request_context import RequestContext
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.steering.choices import Candidate, Choice

MAX_CHOSEN_TOKENS = 6
"""Most draft tokens per round that the controller requests of a draft model or of a head's chain. A
request may ask for more. With `draft_ahead`, draft models always draft `num_draft_tokens`."""


@dataclass(frozen=True, slots=True)
class DraftLengths:
    """The draft lengths of one request, from its own fields and from the settings."""

    settings: OrchestratorSettings
    context: RequestContext

    @property
    def asked(self) -> int | None:
        """Draft tokens in a round that the request asks for; None if it leaves them open."""
        return self.context.request.num_draft_tokens

    @property
    def draft_model(self) -> int:
        """Draft tokens of a draft model in a round if the controller does not decide."""
        return self._limited(self.settings.drafters.num_draft_tokens)

    @property
    def draft_model_limit(self) -> int:
        """Most draft tokens that a draft model may be asked for in a round."""
        if self.context.request.drafter.name == AUTO and self.asked is None:
            return self.draft_model if self.settings.drafters.draft_ahead else self._max_chosen
        return self.draft_model

    @property
    def copy(self) -> int:
        """Draft tokens of drafters that cost no pass."""
        return self._limited(self.settings.drafters.lookup_num_draft_tokens)

    @property
    def long_copy(self) -> int:
        """Draft tokens of lookup after a long match."""
        return self._limited(self.settings.drafters.lookup_max_draft_tokens)

    @property
    def takes_trees(self) -> bool:
        """Whether the engines and the request's verification mode take trees."""
        sampling = self.context.sampling
        return self.settings.engines.has_shared_sampler and (
            not sampling.verifies_by_probability or sampling.verification == REJECTION
        )

    @property
    def _max_chosen(self) -> int:
        return min(MAX_CHOSEN_TOKENS, self.settings.engines.max_draft_len)

    def _limited(self, configured: int) -> int:
        """Return the request's own draft length, else `configured`, cut to `max_draft_len`."""
        return min(self.asked or configured, self.settings.engines.max_draft_len)

    def shape(self, head: DrafterId) -> HeadShape:
        """Return the shape of the head's draft: a chain or a tree, and k."""
        drafters, is_tree = self.settings.drafters, head.kind is HEAD_TREE and self.takes_trees
        configured = (
            drafters.head_tree_num_draft_tokens if is_tree else drafters.head_num_draft_tokens
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
        if self.asked is not None or self.settings.drafters.draft_ahead:
            lengths = (self.draft_model,)
        return Candidate(drafter.name, lengths)

    def default(self, drafter: DrafterId) -> Choice:
        """Return the choice of a draft model or head before measurements."""
        if drafter.is_head:
            return Choice(drafter.name, self.shape(drafter).num_tokens)
        return Choice(drafter.name, self.draft_model)
