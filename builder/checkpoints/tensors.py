"""Reading the tensors of a safetensors file, with a message that names a file that is broken."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specdec.builder.errors import BuildError


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return all tensors of a file, by name. Raises BuildError if it cannot be read."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise BuildError(f"{file} cannot be read: {error}") from error
