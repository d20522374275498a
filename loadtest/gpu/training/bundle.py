"""The form in which trained weights are returned: few flat files, each small enough."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from specdec.builder.distill.evaluate import Conversation

FOLDER = "checkpoints"
CONTENTS = "contents.json"
MAX_FILE_BYTES = 16 * 2**20
"""Largest file that can be returned, in bytes."""
SMALL_FILES = ("config.json", "trained_on.json")


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that is returned beside the weights, in one file."""

    is_rehearsal: bool
    small: dict[str, dict[str, str]]
    """Small files by name, for each kind of draft (`draft`, `eagle3`)."""
    held_out: tuple[Conversation, ...]
    """Prompts that were not trained on, with the target's answers."""


class Bundle:
    """A folder of trained weights, replaced as a whole for each kind."""

    def __init__(self, folder: Path, contents: Contents) -> None:
        """Start with the given contents; nothing is written before the first `put`."""
        self._folder, self._contents = folder, contents

    def put(self, kind: str, stored: Path) -> None:
        """Add the stored form of a draft model or head. Raises ValueError for a file too large."""
        weights = sorted(stored.glob("*.safetensors"))
        for path in weights:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ValueError(f"{path} has {path.stat().st_size} bytes; {MAX_FILE_BYTES} fit")
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in weights:
            new = self._folder / "new"
            shutil.copyfile(path, new)
            new.replace(self._folder / f"{kind}.{path.name}")
        self._contents.small[kind] = {
            name: (stored / name).read_text("utf-8")
            for name in SMALL_FILES
            if (stored / name).is_file()
        }
        new = self._folder / "new"
        new.write_text(json.dumps(asdict(self._contents)), "utf-8")
        new.replace(self._folder / CONTENTS)


def read_contents(folder: Path) -> Contents:
    """Read what was returned beside the weights. Raises OSError if there is nothing."""
    raw = json.loads((folder / CONTENTS).read_text("utf-8"))
    held_out = tuple(Conversation(**each) for each in raw["held_out"])
    return Contents(raw["is_rehearsal"], raw["small"], held_out)


def restore(folder: Path, kind: str, stored: Path) -> None:
    """Write the stored form of one kind, as it was given to `put`, into the folder `stored`."""
    stored.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"{kind}.*"):
        shutil.copyfile(path, stored / path.name.removeprefix(f"{kind}."))
    for name, text in read_contents(folder).small[kind].items():
        (stored / name).write_text(text, "utf-8")


def held_out_of(answered: Sequence[Conversation], num: int) -> tuple[Conversation, ...]:
    """Return up to `num` conversations with answers long enough for several rounds.

    These have at least 16 tokens.
    """
    return tuple(each for each in answered if len(each.answer) >= 16)[:num]
