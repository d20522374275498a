"""Tests of the drafter that a request asks for: names, joined names, and refusals."""

import re

import pytest

from specdec.drafting.asked import AskedDrafter, read_drafter
from specdec.drafting.registry import DRAFT_MODEL, HEAD, SCRIPTED, drafter_ids
from specdec.errors import InvalidRequestError

KNOWN = drafter_ids(
    {
        DRAFT_MODEL: ("draft", "big"),
        HEAD: ("eagle3",),
        SCRIPTED: ("script",),
    }
)


@pytest.mark.parametrize("name", ["auto", "none", "tree", "vote"])
def test_mode_names_no_drafter(name):
    """The server decides which drafters it uses."""
    assert read_drafter(name, KNOWN) == AskedDrafter(name)


@pytest.mark.parametrize(
    "name",
    ["lookup", "draft", "eagle3_tree", "script", "draft+lookup", "big+draft", "suffix+eagle3"],
)
def test_drafters_are_in_the_order_of_the_name(name):
    """Earlier drafters of a joined name use up a tree's tokens first."""
    asked = read_drafter(name, KNOWN)
    assert asked.name == "+".join(each.name for each in asked.members) == name


def test_tree_knows_its_head():
    """A head's chains and trees have the same weights."""
    assert {each.name: each.head for each in KNOWN if each.head} == {"eagle3_tree": "eagle3"}


@pytest.mark.parametrize("name", ["", "Draft", "draft+", "draft+draft", "auto+lookup", "+"])
def test_unknown_or_repeated_names_are_refused(name):
    """The error has all names that are known, and the one given."""
    with pytest.raises(InvalidRequestError) as refused:
        read_drafter(name, KNOWN)
    known = ", ".join(each.name for each in KNOWN)
    expected = f"one of auto, none, {known}, tree, vote, or several of {known} joined by '+'"
    assert f"{expected}; given {name!r}" in str(refused.value)


@pytest.mark.parametrize("name", ["eagle3+draft", "lookup+big+eagle3", "eagle3+eagle3_tree"])
def test_head_beside_another_engine_is_refused(name):
    """No drafter that the request names is dropped in silence."""
    with pytest.raises(InvalidRequestError, match=f"only; given '{re.escape(name)}'"):
        read_drafter(name, KNOWN)
