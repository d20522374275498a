"""The wheel: what it holds, and that commands find their files in it without a checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.contract.declared import ROOT

LINKED = ("builder", "clients", "loadtest", "model_repository")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "backends", *LINKED)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build a wheel from a copy of the sources that has weights, and return the unpacked wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=left_out)
        else:
            shutil.copy(ROOT / name, source)
    weights = source / "model_repository" / "target" / "1" / "checkpoint"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"weights")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, source], check=True)
    (built,) = folder.glob("specdec_triton-*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def left_out(folder, names):
    """Return the names in a folder that are not copied: what building and running left there."""
    is_version = Path(folder).parts[-3:-2] == ("model_repository",)
    return [
        name
        for name in names
        if name == "__pycache__"
        or name.endswith(".egg-info")
        or (is_version and (Path(folder) / name).is_dir())
    ]


def files_below(folder, pattern="*"):
    """Return the relative names of all files below a folder, compiled Python left out."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob(pattern)
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_only_specdec_is_installed(wheel):
    """A wheel puts no other name on the import path of those who install it."""
    names = {path.name for path in wheel.iterdir() if path.suffix != ".dist-info"}

    assert names == {"specdec"}


@pytest.mark.parametrize("folder", ["builder/deploy", "builder/pairs", "builder/prompts"])
def test_data_of_the_builder_are_in_it(wheel, folder):
    """Deploy files, pair files, stored draft and head, and prompts are packed as they are."""
    assert files_below(wheel / "specdec" / folder) == files_below(ROOT / folder)


def test_models_are_in_it_without_weights(wheel):
    """Each model folder has its configuration and its model.py; weights do not travel."""
    found = files_below(wheel / "specdec" / "model_repository")

    models = {path.name for path in (ROOT / "model_repository").iterdir()}
    files = ("config.pbtxt", "1/model.py")
    assert found == {f"{model}/{file}" for model in models for file in files}


@pytest.mark.parametrize("folder", ["builder", "clients", "loadtest"])
def test_modules_of_linked_folders_are_in_it(wheel, folder):
    """Every module of the top-level folders is packed as a part of `specdec`."""
    packed = files_below(wheel / "specdec" / folder, "*.py")

    assert packed == files_below(ROOT / folder, "*.py")


def test_results_are_not_in_it(wheel):
    """Our own measurements stay in the repository."""
    assert not (wheel / "specdec" / "loadtest" / "results").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "--alpha", "0.7"),
        ("build", "render", "smollm2_135m", "--output", "out", "--dry-run"),
        ("bench", "--help"),
    ],
    ids=" ".join,
)
def test_commands_need_no_checkout(wheel, tmp_path, arguments):
    """Commands run from the unpacked wheel in an empty folder, and leave nothing there."""
    environment = {**os.environ, "PYTHONPATH": str(wheel), "HOME": str(tmp_path / "home")}
    ran = subprocess.run(
        [sys.executable, "-m", "specdec", *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_missing_model_repository_is_named_with_the_command_that_fills_it(wheel, tmp_path):
    """`specdec serve` names the user's data folder, never a folder of the installation."""
    environment = {**os.environ, "PYTHONPATH": str(wheel), "XDG_DATA_HOME": str(tmp_path / "data")}
    ran = subprocess.run(
        [sys.executable, "-m", "specdec", "serve"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 1
    assert f"no model in {tmp_path}/data/specdec/model_repository" in ran.stderr
    assert "specdec build pair" in ran.stderr
