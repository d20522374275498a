"""The model repository as Triton's users find it."""

from tests.contract.declared import ROOT

MODELS = ROOT / "model_repository"


def test_repository_holds_models_only():
    """Triton takes every folder for a model: each has a configuration and a version."""
    for folder in MODELS.iterdir():
        assert folder.is_dir()
        assert (folder / "config.pbtxt").is_file()
        assert (folder / "1" / "model.py").is_file()


def test_models_are_thin():
    """model.py names the class; all code is in the package."""
    for path in MODELS.glob("*/1/model.py"):
        assert len(path.read_text().splitlines()) <= 5


def test_backends_folder_stays_ours():
    """`backends/python` is also a name of Triton's: no model.py, nothing but the package."""
    names = {path.name for path in (ROOT / "backends" / "python").iterdir()}

    assert names - {"__pycache__"} == {"specdec"}
