"""The weights in a model's folder: a stored draft or head, completed from its target."""

from __future__ import annotations

from pathlib import Path

from specdec.builder.errors import BuildError
from specdec.builder.hashes import directory_sha256
from specdec.builder.outputs import is_current, replaced, reported
from specdec.deployment import versions

WEIGHTS = Path("1") / versions.CHECKPOINT
"""Folder of a model's weights, relative to the model."""
HEAD = Path("1") / versions.HEAD
"""Folder of the target's EAGLE-3 or Medusa head, relative to the target."""

ASSEMBLY_FORMAT = "1"
"""Version of the written folders; folders of another version are written again."""


def assemble_draft(stored: Path, target: Path, output: Path) -> None:
    """Write a whole draft to `output`: its stored layers, and the parts it shares with the target.

    Raises BuildError if the draft cannot be read or was made for another target.
    """
    from specdec.builder.distill import checkpoint  # noqa: PLC0415 - torch is slow to import

    try:
        checkpoint.assemble(stored, target, output)
    except (OSError, KeyError, ValueError, BuildError) as error:
        raise BuildError(f"the stored draft {stored} does not fit: {error}") from error


def fill_head(head: Path, target: Path, output: Path, *, force: bool = False) -> None:
    """Write the head in the engine's format to `output`, unless it is there and up to date.

    Raises BuildError if the head is incomplete or made for another target.
    """
    made_from = {"head": directory_sha256(head), "format": ASSEMBLY_FORMAT}
    if not force and is_current(output, made_from):
        print(f"{output}: up to date")
        return
    from specdec.builder.heads import checkpoint  # noqa: PLC0415 - torch is slow to import

    with reported(output, head.name), replaced(output, made_from) as new:
        try:
            checkpoint.assemble(head, target, new)
        except (OSError, ValueError, BuildError) as error:
            raise BuildError(f"the head {head} cannot be used: {error}") from error
