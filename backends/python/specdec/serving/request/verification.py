"""Choose a request's verification mode: the one that it asks for, if the engines can do it."""

from __future__ import annotations

from specdec.acceptance.modes import EXACT, NO_VERIFICATION, REJECTION
from specdec.acceptance.sampling import SamplingParams
from specdec.drafting.names import ENGINE
from specdec.errors import UnsupportedError
from specdec.settings.engines import CalledEngineSettings


def choose_verification(
    asked: str | None, params: SamplingParams, engines: CalledEngineSettings
) -> str:
    """Return the verification mode of a request.

    `asked` is the mode in the request. None means the best lossless one, or NO_VERIFICATION if
    these engines cannot verify at a temperature above 0. Raises UnsupportedError for a mode that
    they cannot do.
    """
    if engines.has_drafters_inside:
        return _inside(asked, params, engines)
    # For a greedy request, every mode compares draft tokens with the most likely token.
    if params.is_greedy:
        return EXACT
    if engines.has_shared_sampler:
        return asked or EXACT
    if engines.has_draft_logits and asked in (None, REJECTION):
        return REJECTION
    if asked is None:
        return NO_VERIFICATION
    can = f"{REJECTION!r} alone" if engines.has_draft_logits else "no speculation"
    raise UnsupportedError(
        f"at a temperature above 0 these engines can do {can}; given verification {asked!r}"
    )


def _inside(asked: str | None, params: SamplingParams, engines: CalledEngineSettings) -> str:
    """Return the mode of a target with drafters inside.

    For a greedy request such an engine compares tokens. Its own tokens may depend on what else is
    in the batch, and so on drafts; only if they do not is the mode EXACT. At a temperature it
    verifies by probabilities.
    """
    can = REJECTION
    if params.is_greedy:
        can = EXACT if engines.is_batch_invariant else ENGINE
    if asked is None or asked == can:
        return can
    when = "greedily" if params.is_greedy else "at a temperature above 0"
    raise UnsupportedError(
        f"{when} this engine verifies by {can!r}; leave verification out, given {asked!r}"
    )
