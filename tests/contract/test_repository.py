"""The layout of model_repository/ and backends/, as Triton and its users need it."""

import re
from pathlib import Path

import pytest

from tests.contract.declared import ROOT

MODELS = ROOT / "model_repository"
SHIPPED = {"specdec", "target", "draft"}
"""Models of the default pair; a checkout may have more."""


def test_repository_holds_models_only():
    """Every entry is a model with a configuration and a version, as Triton expects."""
    folders = list(MODELS.iterdir())

    assert {folder.name for folder in folders} >= SHIPPED
    for folder in folders:
        assert folder.is_dir()
        assert (folder / "config.pbtxt").is_file()
        assert (folder / "1" / "model.py").is_file()


def test_models_are_thin():
    """Each model.py has at most five lines: it names a class of the package."""
    paths = list(MODELS.glob("*/1/model.py"))

    assert {path.parts[-3] for path in paths} >= SHIPPED
    for path in paths:
        assert len(path.read_text().splitlines()) <= 5


def test_shipped_repository_has_no_manifest():
    """The server checks a repository that has a manifest; users may change the shipped one."""
    assert not (MODELS / "manifest.json").exists()


def test_backends_folder_stays_ours():
    """`backends/python` holds only the package, because Triton uses a folder of this name too."""
    names = {path.name for path in (ROOT / "backends" / "python").iterdir()}

    # An editable install leaves its list of files there.
    assert names - {"__pycache__", "specdec_triton.egg-info"} == {"specdec"}


@pytest.mark.parametrize("name", ["builder", "clients", "loadtest", "model_repository"])
def test_folders_are_linked_into_the_package(name):
    """The link makes `specdec.builder` and so on, and the checkout can be moved."""
    link = ROOT / "backends" / "python" / "specdec" / name

    assert link.readlink() == Path("../../..") / name
    assert link.resolve() == (ROOT / name).resolve()


def test_code_imports_the_linked_folders_as_parts_of_the_package():
    """No module imports `builder` by that name: it would exist twice, and not in a wheel."""
    pattern = re.compile(r"^\s*(?:from|import) (?:builder|clients|loadtest)\b", re.MULTILINE)
    folders = ("backends/python/specdec", "builder", "clients", "loadtest", "tests", "docs")

    assert [
        str(path)
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if pattern.search(path.read_text("utf-8"))
    ] == []
