"""Tests of the arms and cases that benches compare."""

import pytest

from specdec.loadtest.kit.arms import Arm, Case


@pytest.mark.parametrize(
    ("text", "shown", "fields", "has_chains"),
    [
        ("off", "off", {"num_draft_tokens": 0}, True),
        ("draft", "draft", {"drafter": "draft", "verification": None}, True),
        (
            "draft/rejection",
            "draft, rejection",
            {"drafter": "draft", "verification": "rejection"},
            True,
        ),
        ("draft:4", "draft, k = 4", {"drafter": "draft", "num_draft_tokens": 4}, True),
        ("draft/block", "draft, block", {"drafter": "draft", "verification": "block"}, False),
        ("a+b", "a+b", {"drafter": "a+b", "verification": None}, False),
        ("eagle3:5", "eagle3, k = 5", {"drafter": "eagle3", "num_draft_tokens": 5}, True),
        ("eagle3_tree", "eagle3_tree", {"drafter": "eagle3_tree"}, False),
        ("tree/rejection", "tree, rejection", {"verification": "rejection"}, False),
    ],
)
def test_arm_text_gives_title_and_request_fields(text, shown, fields, has_chains):
    """The text also tells whether draft tokens are verified one by one, so that α̂ is defined."""
    arm = Arm.parse(text)

    assert str(arm) == shown
    assert fields.items() <= arm.fields().items()
    assert arm.has_chains == has_chains


def test_case_text_gives_title_and_sampling_parameters():
    """A case is greedy, or has a temperature, perhaps with top_p."""
    assert str(Case.parse("0")) == "greedy"
    assert str(Case.parse("0.7:0.9")) == "T = 0.7, top_p 0.9"
    assert Case.parse("1").fields(5) == {"temperature": 1.0, "top_p": 1.0, "seed": 5}
