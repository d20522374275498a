"""The choice of verification mode: the best lossless one of the engines, or a refusal."""

import pytest

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.errors import ConfigurationError, UnsupportedError
from specdec.serving.request.verification import choose_verification
from tests.unit.orchestrator_settings import settings_of

SAMPLED = SamplingParams(temperature=0.5)


def choose(asked, extensions, params=SAMPLED):
    """Return the verification mode that is chosen for engines with these extensions."""
    return choose_verification(asked, params, settings_of(engine_extensions=extensions).engines)


@pytest.mark.parametrize("extensions", ["shared_sampler", "draft_logits", ""])
@pytest.mark.parametrize("asked", [None, "exact", "rejection", "block", "typical"])
def test_greedy_requests_are_verified_exactly_on_every_engine(asked, extensions):
    """At temperature 0 every mode means equality with the most likely token."""
    assert choose(asked, extensions, GREEDY) == "exact"


@pytest.mark.parametrize(
    ("extensions", "default", "possible"),
    [
        ("shared_sampler", "exact", {"exact", "rejection", "block", "typical"}),
        ("draft_logits, shared_sampler", "exact", {"exact", "rejection", "block", "typical"}),
        ("draft_logits", "rejection", {"rejection"}),
        ("", "off", set()),
    ],
)
def test_engine_extensions_decide_which_modes_are_possible(extensions, default, possible):
    """The default is the best lossless mode. A mode asked for is used, or refused by name."""
    assert choose(None, extensions) == default
    for asked in ("exact", "rejection", "block", "typical"):
        if asked in possible:
            assert choose(asked, extensions) == asked
        else:
            with pytest.raises(UnsupportedError, match=asked):
                choose(asked, extensions)


@pytest.mark.parametrize(
    ("extensions", "params", "mode"),
    [
        ("", GREEDY, "engine"),
        ("batch_invariant", GREEDY, "exact"),
        ("", SAMPLED, "rejection"),
        ("batch_invariant", SAMPLED, "rejection"),
    ],
)
def test_target_with_drafters_inside_has_one_mode(extensions, params, mode):
    """Equality with the answer without drafts is claimed only if the operator has measured it."""
    engines = settings_of(engine_kind="drafters_inside", engine_extensions=extensions).engines
    assert choose_verification(None, params, engines) == mode
    assert choose_verification(mode, params, engines) == mode
    with pytest.raises(
        UnsupportedError, match=f"by '{mode}'; leave verification out, given 'block'"
    ):
        choose_verification("block", params, engines)


def test_unknown_extension_is_a_configuration_error():
    """A typing mistake must not turn speculation off for sampled requests."""
    with pytest.raises(ConfigurationError, match="'shared_sampling'"):
        settings_of(engine_extensions="shared_sampling")
