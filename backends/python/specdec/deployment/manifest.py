"""Read the manifest of a rendered model repository, and compare its files with those on disk.

`specdec build render` writes the manifest. A repository without one is served unchecked.
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
"""Version of the manifest's layout; files with any other are refused."""

MIB = 1 << 20
WHOLE_BYTES = 512 * MIB
"""Bytes up to which a whole file is hashed. Of larger files only samples are hashed, because a
load must not wait until 140 GB have been read twice."""
NUM_SAMPLES = 64
"""Samples of 1 MiB hashed in a larger file, evenly spaced from its start to its end."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size and hash of one file."""

    num_bytes: int
    sha256: str
    """Hexadecimal hash of the content, or of samples if the file is larger than WHOLE_BYTES."""


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """The manifest's entry for one engine: a target or a draft model."""

    kind: str
    """Kind of engine: `torch`, `tensorrtllm` or `llmapi`."""
    model: str
    """Name of the checkpoint, for messages and human readers."""
    vocab_size: int
    """Number of rows of the model's embedding."""
    devices: tuple[int, ...] = ()
    """Indices of the GPUs on which the engine runs."""
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
    """Most draft tokens that the engines take in a round."""
    max_seq_len: int
    """Most tokens that the engines take, prompt and output together."""
    engines: Mapping[str, EngineRecord]
    """Engines by model name."""
    files: Mapping[str, FileRecord]
    """Files of weights, engines and tokenizers, by path relative to the repository."""
    tensorrt_llm: str = ""
    """TensorRT-LLM release that the engines are for; empty if they are our own."""
    container: str = ""
    """Container image of that release; empty if there is none."""
    gpu: str = ""
    """Name of the GPU that the engines are for; empty for any device."""
    compute_capability: int = 0
    """Compute capability of that GPU times 10, such as 80 for 8.0; 0 for any device."""
    build_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Command-line options that compile each engine, by engine; empty if none is compiled."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Drafter that the pair file names for each task, by task."""

    def text(self) -> str:
        """Return the manifest as JSON; equal manifests give the same bytes."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=2, sort_keys=True) + "\n"


def load_manifest(repository: Path) -> Manifest | None:
    """Read a repository's manifest; None if it has none.

    Raises ConfigurationError if the file cannot be read or has a format other than FORMAT.
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
    """Return a file's present size and hash. Raises OSError if it cannot be read."""
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
