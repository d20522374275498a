"""Tests of what the controller may choose for a request, and of its default."""

import pytest

from specdec.drafter_building.draft_lengths import DraftLengths
from specdec.drafter_building.steered import SteeredRequest
from specdec.settings.drafters import DrafterSettings
from specdec.steering.choices import COPY_CHOICE, Choice

SETTINGS = DrafterSettings(draft_models=("draft",), head="eagle3")
BY_NAME = {each.name: each for each in SETTINGS.ids}
USUAL = ("lookup", "draft", "eagle3", "eagle3_tree")


def request(*names, routed=None, takes_trees=True, asked=None, is_fixed=False):
    """Return a request that may use the drafters with these names."""
    return SteeredRequest(
        task="chat",
        band="greedy",
        num_prompt_tokens=3,
        lengths=DraftLengths(SETTINGS, 16, asked, is_auto=not is_fixed, takes_trees=takes_trees),
        drafters=[BY_NAME[name] for name in names],
        routed=BY_NAME.get(routed),
        is_fixed=is_fixed,
    )


def traits(given):
    """Return the traits of a request whose heads and draft models are all candidates."""
    engines = [given.lengths.candidate(each) for each in given.drafters if each.name == "draft"]
    return given.traits((*(each.candidate for each in given.heads().values()), *engines))


@pytest.mark.parametrize(
    ("routed", "default"),
    [
        (None, Choice("eagle3", 3)),
        ("draft", Choice("draft", 2)),
        ("lookup", COPY_CHOICE),
        ("prediction", Choice("eagle3", 3)),
        ("suffix", Choice("eagle3", 3)),
    ],
)
def test_configured_drafter_is_the_default_only_if_it_can_draft(routed, default):
    """For example, the request has no prediction, so the drafter `prediction` has no draft."""
    found = traits(request(*USUAL, routed=routed))
    assert found.default == default
    assert found.is_routed == (routed in USUAL)


def test_drafter_that_a_request_names_is_not_replaced_by_the_configured_one():
    """The controller then only measures it."""
    found = traits(request("lookup", routed="draft", is_fixed=True))
    assert (found.default, found.is_routed, found.may_be_off) == (COPY_CHOICE, False, False)


@pytest.mark.parametrize(
    ("takes_trees", "is_fixed", "heads"),
    [
        (True, False, ["eagle3", "eagle3_tree"]),
        (False, False, ["eagle3"]),
        (False, True, ["eagle3", "eagle3_tree"]),
    ],
)
def test_tree_of_a_head_is_no_choice_where_trees_are_not_taken(takes_trees, is_fixed, heads):
    """It would be the same chain under another name; a request that names it gets that chain."""
    given = request(*USUAL, takes_trees=takes_trees, is_fixed=is_fixed)
    assert list(given.heads()) == heads


@pytest.mark.parametrize(("asked", "may_be_off"), [(None, True), (3, False)])
def test_request_that_asks_for_a_length_is_not_switched_off(asked, may_be_off):
    """It said that it wants drafts."""
    assert traits(request(*USUAL, asked=asked)).may_be_off == may_be_off
