"""Tests of the verification modes."""

from specdec.acceptance.modes import VERIFICATION_MODES, compares_probabilities, needs_draft_logits
from specdec.acceptance.rules import RULES


def test_modes_that_compare_probabilities_have_a_rule():
    """The torch engine finds the rule by the mode's name."""
    assert {mode for mode in VERIFICATION_MODES if compares_probabilities(mode)} == RULES.keys()
    assert {mode for mode in VERIFICATION_MODES if needs_draft_logits(mode)} < RULES.keys()
