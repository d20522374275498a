"""The check that `build pair` and `add-draft` make of the checkpoints of target and draft."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.builder.checkpoints.files import count_parameters, read_config
from specdec.builder.checkpoints.tokenizers import probe_difference
from specdec.builder.errors import BuildError

SPECIAL_IDS = ("bos_token_id", "eos_token_id")
MAX_SIZE_RATIO = 0.5
"""Largest draft, relative to its target: a draft pays off only if its passes are much cheaper."""


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
    difference = probe_difference(target, draft)
    if difference is not None:
        raise BuildError(f"target and draft have different tokenizers: {difference}")
    report = PairReport(
        vocab_size=target_config["vocab_size"],
        num_target_parameters=count_parameters(target),
        num_draft_parameters=count_parameters(draft),
    )
    if report.size_ratio > MAX_SIZE_RATIO:
        raise BuildError(
            f"a draft may have at most {MAX_SIZE_RATIO:.0%} of the target's parameters; "
            f"given {report.num_draft_parameters:,} of {report.num_target_parameters:,} "
            f"({report.size_ratio:.0%})"
        )
    return report


def has_same_vocabulary(target: Path, draft: Path) -> bool:
    """Return whether both have the same vocabulary size and the same ids for all probe texts.

    Raises BuildError if a directory has no readable config.json or tokenizer.json.
    """
    sizes = [read_config(directory).get("vocab_size") for directory in (target, draft)]
    return sizes[0] == sizes[1] and probe_difference(target, draft) is None
