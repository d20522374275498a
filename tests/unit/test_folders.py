"""The folders of commands, in a checkout and in a wheel."""

from pathlib import Path

import pytest

from specdec import folders


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Make the package look as if it were installed, with an empty working directory and home."""
    monkeypatch.setattr(folders, "CHECKOUT", tmp_path / "lib")
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def test_package_holds_the_shipped_models_and_files():
    """Model folders, pair files and deploy files are found inside the package."""
    assert (folders.SHIPPED_MODELS / "specdec" / "config.pbtxt").is_file()
    assert (folders.PACKAGE / "builder" / "pairs" / "smollm2_135m.toml").is_file()
    assert (folders.PACKAGE / "builder" / "deploy" / "Dockerfile").is_file()


def test_checkout_is_the_default_from_any_folder(tmp_path, monkeypatch):
    """From another folder, commands of a checkout use the checkout's model repository."""
    monkeypatch.chdir(tmp_path)

    assert folders.is_checkout()
    assert folders.default_model_repository() == folders.CHECKOUT / "model_repository"
    assert folders.default_results() == folders.CHECKOUT / "loadtest" / "results"


@pytest.mark.usefixtures("wheel")
def test_wheel_uses_the_folders_of_the_user(tmp_path, monkeypatch):
    """Nothing is written into the installation: models, downloads and results lie elsewhere."""
    home = tmp_path / "home"
    assert not folders.is_checkout()
    assert folders.default_model_repository() == home / ".local/share/specdec/model_repository"
    assert folders.default_download_cache() == home / ".cache/specdec/models"
    assert folders.default_results() == Path("results")

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert folders.default_model_repository() == tmp_path / "data/specdec/model_repository"


@pytest.mark.usefixtures("wheel")
def test_working_directory_comes_first():
    """`model_repository` in the working directory is used where it exists."""
    Path("model_repository").mkdir()

    assert folders.default_model_repository() == Path("model_repository")
