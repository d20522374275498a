"""Checks of two checkpoints that are to be target and draft: tokenizer, token ids and size."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.errors import BuildError
from builder.tokenizer_match import probe_difference

SPECIAL_IDS = ("bos_token_id", "eos_token_id")
# A draft pays off only if its pass is much cheaper than the target's.
MAX_SIZE_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class PairReport:
    """The sizes of a target and a draft that fit each other."""

    vocab_size: int
    num_target_parameters: int
    num_draft_parameters: int

    @property
    def size_ratio(self) -> float:
        """Draft parameters / target parameters."""
        return self.num_draft_parameters / self.num_target_parameters


def check_pair(target: Path, draft: Path) -> PairReport:
    """Check that `draft` can draft for `target`; both are Hugging Face directories.

    Raises BuildError with the first problem: another vocabulary size, other special ids, other ids
    for a probe text, or more than MAX_SIZE_RATIO of the target's parameters.
    """
    target_config, draft_config = read_config(target), read_config(draft)
    for key in ("vocab_size", *SPECIAL_IDS):
        if target_config.get(key) != draft_config.get(key):
            raise BuildError(
                f"{key} must be the same; target: {target_config.get(key)}, "
                f"draft: {draft_config.get(key)}"
            )
    check_same_tokenizer(target, draft)
    report = PairReport(
        vocab_size=target_config["vocab_size"],
        num_target_parameters=count_parameters(target),
        num_draft_parameters=count_parameters(draft),
    )
    if report.size_ratio > MAX_SIZE_RATIO:
        raise BuildError(
            f"a draft may have at most {MAX_SIZE_RATIO:.0%} of the target's parameters; "
            f"given: {report.num_draft_parameters:,} of {report.num_target_parameters:,} "
            f"({report.size_ratio:.0%})"
        )
    return report


def check_same_tokenizer(target: Path, draft: Path) -> None:
    """Raise BuildError unless both tokenizers give the same ids for all probe texts."""
    difference = probe_difference(target, draft)
    if difference is not None:
        raise BuildError(f"target and draft have different tokenizers: {difference}")


def has_same_vocabulary(target: Path, draft: Path) -> bool:
    """Return whether both have the same vocabulary size and the same ids for all probe texts.

    Raises BuildError if a directory has no readable config.json or tokenizer.json.
    """
    sizes = [read_config(directory).get("vocab_size") for directory in (target, draft)]
    return sizes[0] == sizes[1] and probe_difference(target, draft) is None


def count_parameters(directory: Path) -> int:
    """Return the number of stored parameters, read from the headers of the safetensors files.

    Raises BuildError if the directory has no such file.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise BuildError(f"{directory} holds no safetensors file")
    return sum(
        math.prod(tensor["shape"])
        for file in files
        for name, tensor in safetensors_header(file).items()
        if name != "__metadata__"
    )


def safetensors_header(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: dtype, shape and offsets of each tensor, by name.

    It may also have the key `__metadata__`. Raises BuildError if the file has no such header.
    """
    try:
        with file.open("rb") as stream:
            (num_bytes,) = struct.unpack("<Q", stream.read(8))
            header: dict[str, Any] = json.loads(stream.read(num_bytes))
    except (struct.error, ValueError) as error:
        raise BuildError(f"{file} is no safetensors file: {error}") from error
    return header


def read_config(directory: Path) -> dict[str, Any]:
    """Return the contents of config.json. Raises BuildError if it is missing or unreadable."""
    try:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"{directory} has no readable config.json: {error}") from error
    return config
