"""The files of a checkpoint folder: config.json and the headers of its safetensors files."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from specdec.builder.errors import BuildError

TOKENIZER_FILES = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
"""Files of a tokenizer, and its model's defaults of generation; a checkpoint has some of them."""


def read_config(directory: Path) -> dict[str, Any]:
    """Return the contents of config.json. Raises BuildError if it is missing or unreadable."""
    try:
        config = json.loads((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"{directory} has no readable config.json: {error}") from error
    if not isinstance(config, dict):
        raise BuildError(f"{directory} has no readable config.json: it holds no JSON object")
    return config


def tensor_headers(directory: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Return the file and the header of each stored tensor, by name.

    A header has the tensor's dtype, shape and offsets. Raises BuildError if the directory has no
    safetensors file, or one that is broken.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise BuildError(f"{directory} holds no safetensors file")
    return {
        name: (file, tensor)
        for file in files
        for name, tensor in safetensors_header(file).items()
        if name != "__metadata__"
    }


def count_parameters(directory: Path) -> int:
    """Return the number of stored parameters, read from the headers of the safetensors files.

    Raises BuildError if the directory has no such file, or one that is broken.
    """
    return sum(math.prod(tensor["shape"]) for _, tensor in tensor_headers(directory).values())


def safetensors_header(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: dtype, shape and offsets of each tensor, by name.

    It may also have the key `__metadata__`. Raises BuildError if the file has no such header, or
    ends before its tensors do.
    """
    try:
        with file.open("rb") as stream:
            (num_bytes,) = struct.unpack("<Q", stream.read(8))
            header: dict[str, Any] = json.loads(stream.read(num_bytes))
    except (struct.error, ValueError, MemoryError, OverflowError) as error:
        raise BuildError(f"{file} is not a safetensors file: {error}") from error
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    if file.stat().st_size < 8 + num_bytes + max(ends, default=0):
        raise BuildError(f"{file} ends before its tensors do")
    return header
