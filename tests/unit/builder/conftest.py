"""Fixtures that several tests of the builder use."""

import pytest

from specdec.builder.importing import packages
from tests.unit.builder.importing.registry import Registry


@pytest.fixture
def downloads(monkeypatch):
    """Replace PyPI by a registry of our own; return the list of downloaded packages."""
    registry = Registry()
    monkeypatch.setitem(packages.DOWNLOADERS, "pypi", registry.download)
    return registry.downloads
