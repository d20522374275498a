"""Tests that each broken pair gets a message that says what is wrong, why, and what to do."""

import pytest

from specdec.builder.checking import WARNING, check_description
from specdec.builder.description import known_pairs, load_description
from tests.unit.builder.checking.broken_pairs import (
    BROKEN,
    DOCUMENT,
    Broken,
    document,
    findings,
    matching,
)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda each: f"{each.pair}: {each.what}")
def test_broken_pair_gets_its_message(broken: Broken, tmp_path):
    """The check finds the change; its code, the given values and the remedy are as expected."""
    found = findings(broken, tmp_path)

    assert matching(broken, found) is not None, [
        f"{each.severity} {each.code}: {each.message} → {each.remedy}" for each in found
    ]


@pytest.mark.parametrize("name", known_pairs())
def test_shipped_pair_can_be_built(name):
    """A shipped pair has no error, and no warning except on the size of its draft model."""
    report = check_description(load_description(name))

    assert report.is_buildable
    warnings = {each.code for each in report.findings if each.severity == WARNING}
    assert warnings <= {"size_ratio", "small_draft"}


def test_document_shows_what_the_checks_say():
    """BROKEN.md is what the table and the checks produce today."""
    assert DOCUMENT.read_text("utf-8") == document()
