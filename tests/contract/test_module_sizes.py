"""Modules stay short enough to be read in one go."""

import pytest

from tests.contract.declared import ROOT

MAX_LINES = 300
PACKAGES = ("backends/python/specdec", "builder", "clients", "loadtest")
LONGER = {
    "backends/python/specdec/tasks/cues.py": 420,
}
"""Modules with more lines than allowed, and the most lines that each may have. Only lower these."""


def lines_of(path):
    """Return the number of lines of a file."""
    return len(path.read_text("utf-8").splitlines())


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_are_short(package):
    """A module has at most 300 lines; those in LONGER do not grow."""
    sizes = {
        path.relative_to(ROOT).as_posix(): lines_of(path) for path in (ROOT / package).rglob("*.py")
    }

    assert {name: n for name, n in sizes.items() if n > LONGER.get(name, MAX_LINES)} == {}


def test_list_of_longer_modules_has_no_others():
    """A module that became short enough, or is gone, is no longer in LONGER."""
    found = {
        name for name in LONGER if (ROOT / name).exists() and lines_of(ROOT / name) > MAX_LINES
    }

    assert set(LONGER) - found == set()
