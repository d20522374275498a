"""The manifest of a rendered model repository, and what must still be true of it at load.

`specdec build render` writes it; without one a repository is served as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specdec.errors import ConfigurationError

MANIFEST_FILE = "manifest.json"
FORMAT = 1

MIB = 1 << 20
WHOLE_BYTES = 512 * MIB
"""Larger files are hashed by samples: a load must not wait for 140 GB to be read twice."""
NUM_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of the repository as it was rendered."""

    num_bytes: int
    sha256: str
    """Of all of it; of samples where it is larger than WHOLE_BYTES."""


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """A target or a draft."""

    kind: str
    """torch, tensorrtllm or llmapi."""
    model: str
    """The checkpoint's name, for people."""
    vocab_size: int
    """Rows of the embedding."""
    devices: tuple[int, ...] = ()
    engine_dir: str = ""
    """Of a compiled engine; relative to the repository."""
    fingerprint: str = ""
    """Of a target's weights (builder/fingerprint.py); empty where they were not at hand."""
    trained_on: str = ""
    """The fingerprint of the target that a draft was trained on; empty where none is recorded."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a repository was rendered from and for."""

    pair: str
    pair_sha256: str
    """Of the pair file."""
    specdec: str
    """The version that rendered it."""
    max_draft_len: int
    max_seq_len: int
    engines: Mapping[str, EngineRecord]
    files: Mapping[str, FileRecord]
    """By path in the repository: weights, engines, tokenizers."""
    tensorrt_llm: str = ""
    """The release that compiled the engines; empty without compiled ones."""
    container: str = ""
    gpu: str = ""
    compute_capability: int = 0
    """Of the GPUs the engines are for, 80 for 8.0; 0 for any device."""
    build_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What each engine was, or is to be, compiled with."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Drafters by task."""

    def text(self) -> str:
        """As JSON; the same manifest gives the same bytes."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=2, sort_keys=True) + "\n"


def load_manifest(repository: Path) -> Manifest | None:
    """Returns None where there is none. Raises ConfigurationError for one that cannot be read."""
    path = repository / MANIFEST_FILE
    if not path.is_file():
        return None
    try:
        table: dict[str, Any] = json.loads(path.read_text("utf-8"))
        found = table.pop("format")
        if found != FORMAT:
            raise ConfigurationError(
                f"{path} has format {found}, this release reads {FORMAT}: render the repository "
                "with the release that serves it"
            )
        engines = {
            name: EngineRecord(**each | {"devices": tuple(each["devices"])})
            for name, each in table.pop("engines").items()
        }
        files = {name: FileRecord(**each) for name, each in table.pop("files").items()}
        flags = {name: tuple(each) for name, each in table.pop("build_flags").items()}
        return Manifest(engines=engines, files=files, build_flags=flags, **table)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is no manifest: {error!r}") from error


def record(path: Path) -> FileRecord:
    """What is recorded of a file."""
    num_bytes = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if num_bytes <= WHOLE_BYTES:
            while chunk := file.read(MIB):
                digest.update(chunk)
        else:
            for sample in range(NUM_SAMPLES):
                file.seek((num_bytes - MIB) * sample // (NUM_SAMPLES - 1))
                digest.update(file.read(MIB))
    return FileRecord(num_bytes, digest.hexdigest())


def changed_files(repository: Path, manifest: Manifest) -> list[str]:
    """What is wrong with each recorded file that is not as it was."""
    problems = []
    for name, recorded in manifest.files.items():
        path = repository / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif path.stat().st_size != recorded.num_bytes:
            problems.append(
                f"{name} has {path.stat().st_size:,} bytes, {recorded.num_bytes:,} when rendered"
            )
        elif record(path) != recorded:
            problems.append(f"{name} has other content than when the repository was rendered")
    return problems
