"""The layout of model_repository/ and backends/, as Triton and its users need it."""

from tests.contract.declared import ROOT

MODELS = ROOT / "model_repository"


def test_repository_holds_models_only():
    """Every entry is a model with a configuration and a version, as Triton expects."""
    for folder in MODELS.iterdir():
        assert folder.is_dir()
        assert (folder / "config.pbtxt").is_file()
        assert (folder / "1" / "model.py").is_file()


def test_models_are_thin():
    """Each model.py has at most five lines: it names a class of the package."""
    for path in MODELS.glob("*/1/model.py"):
        assert len(path.read_text().splitlines()) <= 5


def test_backends_folder_stays_ours():
    """`backends/python` holds only the package, because Triton uses a folder of this name too."""
    names = {path.name for path in (ROOT / "backends" / "python").iterdir()}

    assert names - {"__pycache__"} == {"specdec"}
