"""The picture of the packages: committed as it is drawn, with arrows that go down."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

from tests.checks.imports import reduced
from tests.checks.packages import PICTURE, drawing, drawn_packages

HOUSE = {
    "roof": frozenset({"wall", "floor"}),
    "wall": frozenset({"floor"}),
    "door": frozenset({"floor"}),
    "floor": frozenset(),
}


def test_the_committed_picture_is_the_drawn_one():
    """After imports between packages have changed, draw again: python -m tests.checks.packages."""
    assert PICTURE.read_text("utf-8") == drawing(drawn_packages())


def test_imports_that_follow_from_others_are_left_out():
    """Only the longest way from package to package is drawn."""
    assert reduced(HOUSE)["roof"] == {"wall"}
    assert reduced(HOUSE)["wall"] == {"floor"}


def test_each_package_has_a_box_and_arrows_go_down():
    """The picture shows each package once, above those that it imports."""
    svg = drawing(HOUSE)
    root = ET.fromstring(svg)  # noqa: S314, our own text
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sorted(texts) == sorted(HOUSE)
    arrows = re.findall(r'class="arrow" d="M[\d.]+ (\d+).* (\d+)"', svg)
    assert len(arrows) == 3  # roof to wall, wall to floor, door to floor
    assert all(int(start) < int(end) for start, end in arrows)


def test_boxes_of_a_row_do_not_touch():
    """A row with many packages grows wider."""
    svg = drawing(
        {"all": frozenset(str(n) * 9 for n in range(9))}
        | {str(n) * 9: frozenset() for n in range(9)}
    )
    boxes = re.findall(r'class="box" x="([\d.]+)" y="(\d+)" width="(\d+)"', svg)
    row = sorted((float(x), float(width)) for x, y, width in boxes if y != boxes[0][1])
    assert len(row) == 9
    assert all(x + width < after for (x, width), (after, _) in pairwise(row))
