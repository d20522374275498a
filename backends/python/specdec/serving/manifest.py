"""The manifest of a rendered model repository: read it, and compare recorded files with the disk.

`specdec build render` writes it. A repository without a manifest is served as it is.
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
"""Version of the file's layout; another one is refused."""

MIB = 1 << 20
WHOLE_BYTES = 512 * MIB
"""Bytes up to which a file is hashed as a whole. Larger ones are sampled, because a load must not
wait until 140 GB have been read twice."""
NUM_SAMPLES = 64
"""Samples of 1 MiB taken from a larger file, at even distances from its start to its end."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size and hash of a file when the repository was rendered."""

    num_bytes: int
    sha256: str
    """Hexadecimal hash of the content; of its samples if the file is larger than WHOLE_BYTES."""


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """The record of one engine: a target or a draft model."""

    kind: str
    """Kind of engine: `torch`, `tensorrtllm` or `llmapi`."""
    model: str
    """Name of the checkpoint, for readers."""
    vocab_size: int
    """Rows of the embedding."""
    devices: tuple[int, ...] = ()
    """Indices of the GPUs that it is placed on."""
    engine_dir: str = ""
    """Folder of a compiled engine, relative to the repository; empty for other kinds."""
    fingerprint: str = ""
    """Hash of a target's weights (builder/fingerprint.py); empty if they were not available."""
    trained_on: str = ""
    """Fingerprint of the target that a draft model was trained for; empty if none is recorded."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The record of what a repository was rendered from and for."""

    pair: str
    pair_sha256: str
    """Hexadecimal hash of the pair file."""
    specdec: str
    """Version of specdec that rendered the repository."""
    max_draft_len: int
    """Most draft tokens in a round that the engines take."""
    max_seq_len: int
    """Most tokens of prompt and output together that the engines take."""
    engines: Mapping[str, EngineRecord]
    """Records by the name of the engine's model."""
    files: Mapping[str, FileRecord]
    """Records by path in the repository, for weights, engines and tokenizers."""
    tensorrt_llm: str = ""
    """Release that the engines are for; empty without engines of TensorRT-LLM."""
    container: str = ""
    """Container image of that release; empty as above."""
    gpu: str = ""
    """Name of the GPU that the engines are for; empty for any device."""
    compute_capability: int = 0
    """Compute capability of these GPUs times 10: 80 for 8.0; 0 for any device."""
    build_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Options by engine, with which it was or is to be compiled."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Names of drafters by task."""

    def text(self) -> str:
        """Return the manifest as JSON; equal manifests give the same bytes."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=2, sort_keys=True) + "\n"


def load_manifest(repository: Path) -> Manifest | None:
    """Read a repository's manifest; None if it has none.

    Raises ConfigurationError if the file cannot be read, or has another FORMAT.
    """
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
    """Return the size and hash of a file as they are now. Raises OSError if it cannot be read."""
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
    """Return one sentence for each recorded file that is missing or has changed."""
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
