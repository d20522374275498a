"""Output directories that are moved into place whole, with a record of what they were made from."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec.builder.errors import BuildError

RECORD = "built_from.json"
"""File in an output directory that records its input and the sizes of its files."""


def is_current(directory: Path, made_from: dict[str, str]) -> bool:
    """Return whether `directory` was made from `made_from` and its files kept their sizes."""
    try:
        record = json.loads((directory / RECORD).read_text("utf-8"))
        files: dict[str, int] = record["files"]
        return record["made_from"] == made_from and all(
            (directory / name).stat().st_size == num_bytes for name, num_bytes in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextmanager
def replaced(directory: Path, made_from: dict[str, str]) -> Iterator[Path]:
    """Yield an empty directory to fill, which replaces `directory` at the end of the block.

    The old directory is renamed away, then the new one is renamed to its path. If the block raises,
    the old one stays as it was. Raises BuildError if `directory` is a file.
    """
    if directory.exists() and not directory.is_dir():
        raise BuildError(f"{directory} is a file; a directory is to be written there")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{directory.name}.", dir=directory.parent) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        yield new
        files = {}
        for path in sorted(new.rglob("*")):
            if path.is_file():
                path.chmod(0o644)  # safetensors writes 0600; the server may be another user
                files[str(path.relative_to(new))] = path.stat().st_size
        record = {"made_from": made_from, "files": files}
        (new / RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        if directory.exists():
            directory.rename(Path(scratch) / "old")
        new.rename(directory)


@contextmanager
def reported(output: Path, name: str) -> Iterator[None]:
    """Print how long the block took to write `name` to `output`."""
    started_s = time.monotonic()
    yield
    print(f"{output}: {name}, written in {time.monotonic() - started_s:.1f} s")


def link_or_copy(source: str, copy: str) -> None:
    """Hard-link `copy` to the file `source`, or copy it if the file system has no such links."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copy2(source, copy)
