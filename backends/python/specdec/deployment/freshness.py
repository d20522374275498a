"""Find out whether drafters fit the served target, and whether they have been replaced.

Only draft models and heads are looked at, because other drafters have no weights. A drafter fits if
the recorded hash of the target that it was trained on is that of the served target. A replacement
shows as another version while the server runs, and as another hash of the drafter's files over a
restart.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specdec.deployment.manifest import record
from specdec.deployment.versions import ENGINE

logger = logging.getLogger(__name__)

FINGERPRINT_FILE = "fingerprint.json"
"""File in a target's checkpoint: `{"sha256": …}`, the hash of its weights by
`builder/fingerprint.py`."""
RECORD_FILE = "trained_on.json"
"""File in the checkpoint of a draft model or a head: `{"target_sha256": …}`, the hash of the target
that it was trained on."""

PERIOD_S = 2.0
"""Seconds between two looks; a retrained drafter is swapped in while the server runs."""


@dataclass(frozen=True, slots=True)
class StaleDrafter:
    """A drafter that was trained on another target than the one served."""

    drafter: str
    trained_on: str
    """SHA-256 of the target that it was trained on."""
    target: str
    """SHA-256 of the target that is served."""

    def __str__(self) -> str:
        return (
            f"drafter {self.drafter!r} is stale: it was trained on the target "
            f"{self.trained_on[:12]}, served is {self.target[:12]}. Answers stay right, fewer "
            "drafts are accepted. `specdec build refresh` trains a draft model on, `build eagle3` "
            "or `build medusa` a head"
        )


@cache
def weights_of(folder: Path) -> str:
    """Return a hash of the files of a draft model or a head, and of an engine compiled from it.

    The files are read once per folder: a server gets new weights as another version in another
    folder. Raises OSError for a file that cannot be read.
    """
    digest = hashlib.sha256()
    for place in (folder, folder.with_name(ENGINE)):
        for file in sorted(place.iterdir() if place.is_dir() else ()):
            if file.is_file():
                digest.update(f"{place.name}/{file.name} {record(file).sha256}\n".encode())
    return digest.hexdigest()


def fingerprint_of(checkpoint: Path) -> str | None:
    """Return the recorded hash of the target's weights; None without a readable record."""
    return _read(checkpoint / FINGERPRINT_FILE, "sha256")


def trained_on(checkpoint: Path) -> str | None:
    """Return the recorded hash of the target that this draft model or head was trained on.

    The result is None without a readable record.
    """
    return _read(checkpoint / RECORD_FILE, "target_sha256")


def write_fingerprint(checkpoint: Path, sha256: str) -> None:
    """Record the hash of a target's weights in its checkpoint. Raises OSError."""
    _write(checkpoint / FINGERPRINT_FILE, "sha256", sha256)


def write_trained_on(checkpoint: Path, target_sha256: str) -> None:
    """Record in a drafter's checkpoint which target it was trained on. Raises OSError."""
    _write(checkpoint / RECORD_FILE, "target_sha256", target_sha256)


def _read(path: Path, key: str) -> str | None:
    try:
        value = json.loads(path.read_text("utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _write(path: Path, key: str, value: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({key: value}) + "\n", "utf-8")
    new.replace(path)


class FreshnessWatch:
    """The watcher of drafters that are stale or were swapped.

    It looks at once, on the caller's thread. Later it looks every `period_s` seconds, on a thread
    of its own.

    `find` returns the folders of the target and of each drafter as they are served at the moment.
    `report` is called for each drafter with a record, and again whenever the finding changes; its
    second argument is None for a drafter that fits. A drafter without a record is not compared. If
    the target has no fingerprint, none is. `swapped` is called for each drafter that is served in
    another version than at the last look.
    """

    def __init__(
        self,
        find: Callable[[], tuple[Path, Mapping[str, Path]]],
        report: Callable[[str, StaleDrafter | None], None],
        swapped: Callable[[str], None],
        period_s: float = PERIOD_S,
    ) -> None:
        self._find = find
        self._report = report
        self._swapped = swapped
        self._folders: dict[str, Path] = {}
        self._known: dict[str, StaleDrafter | None] = {}
        self._closing = threading.Event()
        self._look()
        self._thread = threading.Thread(
            target=self._run, args=(period_s,), name="freshness", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self, period_s: float) -> None:
        while not self._closing.wait(period_s):
            try:
                self._look()
            except Exception:  # Such as a folder that was replaced meanwhile: look again.
                logger.exception("the served drafts could not be looked at")

    def _look(self) -> None:
        target_folder, drafters = self._find()
        for drafter, folder in drafters.items():
            if self._folders.get(drafter, folder) != folder:
                self._swapped(drafter)
            self._folders[drafter] = folder
        target = fingerprint_of(target_folder)
        if target is None:
            return
        for drafter, folder in drafters.items():
            trained = trained_on(folder)
            if trained is None:
                continue
            found = None if trained == target else StaleDrafter(drafter, trained, target)
            if drafter not in self._known or self._known[drafter] != found:
                self._known[drafter] = found
                self._report(drafter, found)
