"""The identity of a run: its sources and its GPU."""

from __future__ import annotations

import hashlib
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specdec.loadtest.gpu.archive import Index
from specdec.loadtest.kit.results import UNKNOWN, commit_of

_FOLDERS = ("backends", "builder", "clients", "loadtest", "model_repository", "tests")
_SUFFIXES = frozenset((".c", ".h", ".j2", ".pbtxt", ".py", ".toml", ".txt"))


@dataclass(frozen=True, slots=True)
class Identity:
    """Sources and GPU of a run."""

    sources: str
    """Hash of the code, the same with and without Git."""
    commit: str
    """Short name of the commit, with `-dirty` if files had changed.

    `unknown` if neither Git nor the archive names it.
    """
    gpu: str
    """Name of the GPU; `rehearsal` without one."""


def identify(root: Path, archive: Path, gpu: str) -> Identity:
    """Return the identity of a run from the checkout `root`.

    Without Git, the index of `archive` names the commit.
    """
    commit = commit_of(root)
    if commit == UNKNOWN:
        with suppress(OSError):
            commit = Index.read(archive).commit
    return Identity(sources_of(root), commit, gpu)


def sources_of(root: Path) -> str:
    """Hash every file of code below `root`, by its path and content; results are left out."""
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def gpu_name() -> str:
    """Return the name of the machine's first GPU. Raises OSError if there is none."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise OSError(f"nvidia-smi finds no GPU: {(done.stdout + done.stderr).strip()}")
    return done.stdout.splitlines()[0].strip()
