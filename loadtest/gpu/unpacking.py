"""Set up a bare machine: unpack the parts, make a serving environment and its model repository."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from specdec.folders import CHECKOUT
from specdec.loadtest.gpu.archive import INDEX, Index, unpack
from specdec.loadtest.gpu.folders import HOME_VARIABLE, GpuFolders

NEEDED = (
    "accelerate", "grpcio", "hypothesis", "jinja2", "ml_dtypes", "packaging", "protobuf", "psutil",
    "pytest", "pytest-timeout", "pyyaml", "safetensors", "setuptools", "tokenizers", "torch",
    "transformers", "urllib3",
)  # fmt: skip
"""Packages of the machine that the serving environment sees, with those that they require.

It sees no others. Packages that were compiled for NumPy 2, such as SciPy, cannot be imported beside
NumPy 1, and transformers imports SciPy if it finds it.
"""
_READY = "ready"


def receive(arrived: Path, folders: GpuFolders) -> list[str]:
    """Keep the parts that have come with this call; return the names of those still missing.

    Without an index, which names the parts, that is the index alone. Parts that were packed at
    another time replace everything below `folders.root`.
    """
    if (arrived / INDEX).is_file():
        index = Index.read(arrived)
        folders.archive.mkdir(parents=True, exist_ok=True)
        if not (folders.archive / INDEX).is_file() or Index.read(folders.archive) != index:
            shutil.rmtree(folders.root)  # The parts kept so far were packed at another time.
            folders.archive.mkdir(parents=True)
            shutil.copy(arrived / INDEX, folders.archive)
        for name, _ in index.parts:
            if (arrived / name).is_file() and name in index.missing(folders.archive):
                shutil.copy(arrived / name, folders.archive)
    if not (folders.archive / INDEX).is_file():
        return [INDEX]
    return Index.read(folders.archive).missing(folders.archive)


def is_set_up(folders: GpuFolders) -> bool:
    """Tell whether `set_up` has finished here for the checkout at its present path."""
    ready = folders.root / _READY
    return ready.is_file() and ready.read_text("utf-8") == str(CHECKOUT)


def set_up(folders: GpuFolders) -> None:
    """Unpack all parts, make the serving environment and its model repository.

    Raises ValueError, OSError or CalledProcessError. The next call then starts from the beginning.
    """
    unpack(folders.archive, folders.root)
    make_environment(folders)
    command = [str(folders.python), "-m", "specdec.loadtest.gpu.model_repository"]
    environment = serving_environment(folders)
    subprocess.run(command, cwd=CHECKOUT, env=environment, check=True)
    (folders.root / _READY).write_text(str(CHECKOUT), "utf-8")


def make_environment(folders: GpuFolders) -> None:
    """Make a virtual environment with the unpacked packages and those that the machine has."""
    venv = folders.python.parents[1]
    shutil.rmtree(venv, ignore_errors=True)
    command = [sys.executable, "-m", "venv", "--without-pip", str(venv)]
    subprocess.run(command, check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    own = {_normal(path.name.split("-")[0]) for path in folders.site.glob("*.dist-info")}
    for entry in _entries(NEEDED, own):
        if not (site / entry.name).exists() and not (folders.site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    # Triton's Python backend ignores PYTHONPATH, so a file sets the search path.
    paths = (folders.site, CHECKOUT / "backends" / "python")
    (site / "specdec.pth").write_text("".join(f"{path}\n" for path in paths), "utf-8")


def serving_environment(folders: GpuFolders) -> dict[str, str]:
    """Return the environment variables for steps that serve."""
    libraries = [str(folders.libraries), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        **os.environ,
        HOME_VARIABLE: str(folders.root),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
    }


def _entries(names: tuple[str, ...], without: set[str]) -> Iterator[Path]:
    """Yield the top-level files and folders of packages and of everything that they require.

    Packages in `without` are left out.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415  the machine's own

    seen, waiting = set(without), [_normal(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"the machine has no package {name}", file=sys.stderr)
            continue
        for text in found.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(_normal(requirement.name))
        tops = {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}
        yield from (Path(str(found.locate_file(top))) for top in sorted(tops))


def _normal(name: str) -> str:
    """Return a package's name in the spelling of PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()
