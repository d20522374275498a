"""Do two checkpoints make a pair? Same tokenizer, same ids, and a draft worth its time."""

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
# A draft pays only if its step is much cheaper than the target's.
MAX_SIZE_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class PairReport:
    """What the checks found: parameter counts, and the share of the target the draft reads."""

    vocab_size: int
    num_target_parameters: int
    num_draft_parameters: int

    @property
    def size_ratio(self) -> float:
        """Draft parameters / target parameters."""
        return self.num_draft_parameters / self.num_target_parameters


def check_pair(target: Path, draft: Path) -> PairReport:
    """Check that `draft` can guess for `target`; both are Hugging Face directories.

    Raises BuildError with the first difference: vocabulary size, special ids, the ids of probe
    texts, or a draft too large to pay.
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
    """Raise BuildError unless both directories turn the probe texts into the same ids."""
    difference = probe_difference(target, draft)
    if difference is not None:
        raise BuildError(f"target and draft have different tokenizers: {difference}")


def has_same_vocabulary(target: Path, draft: Path) -> bool:
    """Say whether both directories mean the same by a token id, as far as probe texts show."""
    sizes = [read_config(directory).get("vocab_size") for directory in (target, draft)]
    return sizes[0] == sizes[1] and probe_difference(target, draft) is None


def count_parameters(directory: Path) -> int:
    """Return the number of stored parameters, from the headers of the safetensors files.

    Raises BuildError if there are none.
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
    """Return the tensors by name, and `__metadata__`; raises BuildError for no safetensors file."""
    try:
        with file.open("rb") as stream:
            (num_bytes,) = struct.unpack("<Q", stream.read(8))
            header: dict[str, Any] = json.loads(stream.read(num_bytes))
    except (struct.error, ValueError) as error:
        raise BuildError(f"{file} is no safetensors file: {error}") from error
    return header


def read_config(directory: Path) -> dict[str, Any]:
    """Return config.json; raises BuildError if there is none."""
    try:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"{directory} has no readable config.json: {error}") from error
    return config
