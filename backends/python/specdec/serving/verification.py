"""Which verification a request gets: what it asks for, as far as the engines can."""

from __future__ import annotations

from specdec.acceptance.sampling import SamplingParams
from specdec.engines.sampling_inputs import EXACT, OFF
from specdec.errors import UnsupportedError
from specdec.serving.settings import OrchestratorSettings


def choose_verification(
    asked: str | None, params: SamplingParams, settings: OrchestratorSettings
) -> str:
    """The mode, the best lossless one unless another is asked for.

    Raises UnsupportedError for a mode that these engines cannot do at this temperature.
    """
    if params.is_greedy:
        return EXACT  # All modes are equality with the most likely token.
    if settings.has_shared_sampler:
        return asked or EXACT
    if settings.has_draft_logits and asked in (None, "rejection"):
        return "rejection"
    if asked is None:
        return OFF
    can = "'rejection' alone" if settings.has_draft_logits else "no speculation"
    raise UnsupportedError(
        f"at a temperature above 0 these engines can do {can}; given verification {asked!r}"
    )
