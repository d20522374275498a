"""Collect what decides the draft lengths of a request."""

from __future__ import annotations

from specdec.acceptance.modes import REJECTION
from specdec.drafter_building.draft_lengths import DraftLengths
from specdec.drafting.names import AUTO
from specdec.serving.request_context import RequestContext
from specdec.settings.orchestrator import OrchestratorSettings


def lengths_of(settings: OrchestratorSettings, context: RequestContext) -> DraftLengths:
    """Return the draft lengths of a request."""
    request, sampling = context.request, context.sampling
    takes_trees = settings.engines.has_shared_sampler and (
        not sampling.verifies_by_probability or sampling.verification == REJECTION
    )
    return DraftLengths(
        settings.drafters,
        settings.engines.max_draft_len,
        request.num_draft_tokens,
        is_auto=request.drafter.name == AUTO,
        takes_trees=takes_trees,
    )
