"""Do the drafts still fit the served target, and are they still the same?

The first by the hash of the target that they were trained on, the second by the version served, and
over a restart by the hash of their files.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specdec.serving.manifest import record
from specdec.serving.versions import ENGINE

FINGERPRINT_FILE = "fingerprint.json"
"""In a target's checkpoint: `{"sha256": …}`, see `builder/fingerprint.py`."""
RECORD_FILE = "trained_on.json"
"""In the checkpoint of a draft or a head: `{"target_sha256": …}` of the target that taught it."""

PERIOD_S = 2.0
"""How often it is looked again: a refreshed draft is swapped in while we serve."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """A draft whose target is another one than the target that is served."""

    drafter: str
    trained_on: str
    target: str

    def __str__(self) -> str:
        return (
            f"draft {self.drafter} is stale: it was trained on the target {self.trained_on[:12]}, "
            f"served is {self.target[:12]}. Answers stay right, fewer guesses are accepted; "
            "`specdec build refresh` trains a draft on, `build eagle3` or `build medusa` a head"
        )


@cache
def weights_of(folder: Path) -> str:
    """A hash of the files of a draft or a head, and of an engine compiled of it.

    Read once: what is served is replaced by another version, not written to.
    """
    digest = hashlib.sha256()
    for place in (folder, folder.with_name(ENGINE)):
        for file in sorted(place.iterdir() if place.is_dir() else ()):
            if file.is_file():
                digest.update(f"{place.name}/{file.name} {record(file).sha256}\n".encode())
    return digest.hexdigest()


def fingerprint_of(checkpoint: Path) -> str | None:
    """The target's recorded hash; None where there is no readable record."""
    return _read(checkpoint / FINGERPRINT_FILE, "sha256")


def trained_on(checkpoint: Path) -> str | None:
    """The hash of the target that taught this draft or head; None where nothing is recorded."""
    return _read(checkpoint / RECORD_FILE, "target_sha256")


def write_fingerprint(checkpoint: Path, sha256: str) -> None:
    """Record a target's hash in its checkpoint."""
    _write(checkpoint / FINGERPRINT_FILE, "sha256", sha256)


def write_trained_on(checkpoint: Path, target_sha256: str) -> None:
    """Record the target of a draft or a head in its checkpoint."""
    _write(checkpoint / RECORD_FILE, "target_sha256", target_sha256)


def _read(path: Path, key: str) -> str | None:
    try:
        value = json.loads(path.read_text("utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _write(path: Path, key: str, value: str) -> None:
    path.write_text(json.dumps({key: value}) + "\n", "utf-8")


class FreshnessWatch:
    """Compares the records now and every `period_s`, on a thread of its own.

    `find` gives the folders of the target and of each drafter, as they are served at the moment.
    `report` hears of each drafter with a record, and again when it changes: what is wrong, or None.
    A draft without a record, or a target without a fingerprint, is not judged.
    `swapped` hears of each drafter whose version is another than at the last look.
    """

    def __init__(
        self,
        find: Callable[[], tuple[Path, Mapping[str, Path]]],
        report: Callable[[str, Drifted | None], None],
        swapped: Callable[[str], None],
        period_s: float = PERIOD_S,
    ) -> None:
        self._find = find
        self._report = report
        self._swapped = swapped
        self._folders: dict[str, Path] = {}
        self._known: dict[str, Drifted | None] = {}
        self._closing = threading.Event()
        self._look()
        self._thread = threading.Thread(
            target=self._run, args=(period_s,), name="freshness", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self, period_s: float) -> None:
        while not self._closing.wait(period_s):
            self._look()

    def _look(self) -> None:
        place, drafters = self._find()
        for drafter, folder in drafters.items():
            if self._folders.get(drafter, folder) != folder:
                self._swapped(drafter)
            self._folders[drafter] = folder
        target = fingerprint_of(place)
        if target is None:
            return
        for drafter, folder in drafters.items():
            record = trained_on(folder)
            if record is None:
                continue
            found = None if record == target else Drifted(drafter, record, target)
            if drafter not in self._known or self._known[drafter] != found:
                self._known[drafter] = found
                self._report(drafter, found)
