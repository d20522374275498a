"""Folders on the machine with the GPU, outside the checkout, so that they outlive it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from specdec.folders import CHECKOUT
from specdec.loadtest.gpu.archive import INDEX, Index

HOME_VARIABLE = "SPECDEC_GPU_HOME"
DEFAULT_HOME = Path("~/.cache/specdec/gpu")
VLLM = "vllm"
"""Name of the archive's member with vLLM and what it needs."""


def home() -> Path:
    """Return the folder for everything that a GPU run unpacks and keeps."""
    return Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME).expanduser().absolute()


def vllm_python(*, is_rehearsal: bool) -> Path:
    """Return the Python of the environment with vLLM, which may not exist.

    On a GPU it is the serving environment, in a rehearsal that of vLLM's CPU build.
    """
    if is_rehearsal:
        return CHECKOUT / ".venv-vllm" / "bin" / "python"
    return GpuFolders(home()).python


def has_vllm(*, is_rehearsal: bool) -> bool:
    """Tell whether vLLM is in that environment, or will be once the whole archive has come."""
    if is_rehearsal:
        return vllm_python(is_rehearsal=True).exists()
    archive = GpuFolders(home()).archive
    if not (archive / INDEX).is_file():
        return False
    return any(member.name == VLLM for member in Index.read(archive).members)


@dataclass(frozen=True, slots=True)
class GpuFolders:
    """The folders below `home()`."""

    root: Path

    @property
    def archive(self) -> Path:
        """The parts of the archive that have arrived so far, and their index."""
        return self.root / "archive"

    @property
    def site(self) -> Path:
        """Packages that the machine lacks, unpacked as an installer would."""
        return self.root / "site"

    @property
    def libraries(self) -> Path:
        """The Python library that Triton's Python backend loads."""
        return self.root / "lib"

    @property
    def target(self) -> Path:
        """The target as it came: its GGUF file and the files of its checkpoint without weights."""
        return self.root / "target"

    @property
    def stored(self) -> Path:
        """The stored weights of draft model and head, one folder each."""
        return self.root / "stored"

    @property
    def training(self) -> Path:
        """Prepared data for the training step."""
        return self.root / "training"

    @property
    def model_repository(self) -> Path:
        """The default pair, ready to be served."""
        return self.root / "model_repository"

    @property
    def python(self) -> Path:
        """The interpreter of the environment that serves."""
        return self.root / "venv" / "bin" / "python"

    @property
    def records(self) -> Path:
        """A copy of the records that stays on the machine between calls."""
        return self.root / "steps.json"
