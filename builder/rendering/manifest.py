"""The manifest of a rendered repository, and `specdec build manifest`, which rewrites or checks it.

`manifest.json` records what the repository was rendered from.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from specdec import __version__
from specdec.builder.description import (
    LLMAPI,
    LLMAPI_DRAFTS,
    TENSORRTLLM,
    TORCH,
    EngineDescription,
    PairDescription,
)
from specdec.builder.errors import BuildError
from specdec.builder.hashes import file_sha256
from specdec.builder.rendering.tensorrtllm import ENGINE
from specdec.builder.repository.weights import WEIGHTS
from specdec.builder.tensorrt_llm.flags import build_flags
from specdec.deployment.freshness import fingerprint_of, trained_on
from specdec.deployment.manifest import (
    MANIFEST_FILE,
    EngineRecord,
    FileRecord,
    Manifest,
    changed_files,
    load_manifest,
    record,
)
from specdec.errors import ConfigurationError

RECORDED = ("checkpoint", "checkpoints", "head", "engine")
"""Folders of a model whose files are recorded, because they are not edited by hand. Parameters in
config.pbtxt are compared by meaning when the server loads, not by bytes."""
WITH_TENSORRT_LLM = (TENSORRTLLM, LLMAPI, LLMAPI_DRAFTS)
"""Kinds of engines whose TensorRT-LLM release the manifest records."""
COLOCATED = Path("specdec") / "checkpoints"
"""Folder in a repository with the weights of colocated engines."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `manifest` to the parser."""
    parser.add_argument("repository", type=Path, metavar="DIR", help="a rendered model repository")
    parser.add_argument(
        "--check", action="store_true", help="only compare; exit status 1 if something differs"
    )


def run(arguments: argparse.Namespace) -> int:
    """Record the files of a repository as they are now, or compare them with --check; return 0.

    Raises BuildError without a manifest, or if --check finds a difference.
    """
    if arguments.check:
        problems = check_manifest(arguments.repository)
        if problems:
            listed = "\n".join(f"- {each}" for each in problems)
            raise BuildError(f"{arguments.repository} does not match its manifest:\n{listed}")
        print(f"{arguments.repository}: as it was rendered")
        return 0
    for change in rewrite_manifest(arguments.repository):
        print(f"recorded: {change}")
    print(f"{arguments.repository}: manifest written")
    return 0


def write_manifest(pair: PairDescription, pair_file: Path, repository: Path) -> Manifest:
    """Write the manifest of `repository`, rendered from `pair` in `pair_file`; return it."""
    engines = pair.served_engines
    is_compiled = pair.engine == TENSORRTLLM
    manifest = Manifest(
        pair=pair.name,
        pair_sha256=file_sha256(pair_file),
        specdec=__version__,
        max_draft_len=pair.limits.max_draft_len,
        max_seq_len=pair.limits.max_seq_len,
        engines={each.name: _engine(pair, each, repository) for each in engines},
        files=recorded_files(repository),
        tensorrt_llm=pair.runtime.version if pair.engine in WITH_TENSORRT_LLM else "",
        container="" if pair.engine == TORCH else pair.runtime.container,
        gpu=pair.gpu.name if pair.gpu else "",
        compute_capability=pair.gpu.compute_capability if pair.gpu else 0,
        build_flags={e.name: build_flags(pair, e) for e in engines} if is_compiled else {},
        tasks=dict(pair.tasks),
    )
    (repository / MANIFEST_FILE).write_text(manifest.text(), "utf-8")
    return manifest


def rewrite_manifest(repository: Path) -> list[str]:
    """Record the files as they are now; return what had changed, as sentences.

    Raises BuildError if there is no readable manifest.
    """
    manifest = _read(repository)
    files = recorded_files(repository)
    changes = changed_files(repository, manifest)
    changes += [f"{name} is new" for name in sorted(files.keys() - manifest.files.keys())]
    engines = {}
    for name, each in manifest.engines.items():
        checkpoint = _checkpoint(repository, name)
        engines[name] = replace(
            each,
            fingerprint=fingerprint_of(checkpoint) or "",
            trained_on=trained_on(checkpoint) or "",
        )
    manifest = replace(manifest, files=files, engines=engines)
    (repository / MANIFEST_FILE).write_text(manifest.text(), "utf-8")
    return changes


def check_manifest(repository: Path) -> list[str]:
    """Return the differences between recorded files and the manifest, as sentences.

    New files are not reported. Raises BuildError if there is no readable manifest.
    """
    return changed_files(repository, _read(repository))


def recorded_files(repository: Path) -> dict[str, FileRecord]:
    """Return records of all files in folders of RECORDED, by path in the repository, sorted."""
    found = [
        path
        for path in repository.rglob("*")
        if path.is_file() and any(part in RECORDED for part in path.relative_to(repository).parts)
    ]
    return {str(path.relative_to(repository)): record(path) for path in sorted(found)}


def _engine(pair: PairDescription, engine: EngineDescription, repository: Path) -> EngineRecord:
    checkpoint = _checkpoint(repository, engine.name)
    return EngineRecord(
        kind=pair.engine,
        model=engine.model,
        vocab_size=_vocab_size(checkpoint) or engine.shape.vocab_size,
        devices=engine.placement.devices,
        engine_dir=str(Path(engine.name) / ENGINE) if pair.engine == TENSORRTLLM else "",
        fingerprint=fingerprint_of(checkpoint) or "",
        trained_on=trained_on(checkpoint) or "",
    )


def _checkpoint(repository: Path, name: str) -> Path:
    colocated = repository / COLOCATED / name
    return colocated if colocated.is_dir() else repository / name / WEIGHTS


def _vocab_size(checkpoint: Path) -> int | None:
    try:
        size = json.loads((checkpoint / "config.json").read_text("utf-8")).get("vocab_size")
    except (OSError, ValueError):
        return None
    return size if isinstance(size, int) else None


def _read(repository: Path) -> Manifest:
    try:
        manifest = load_manifest(repository)
    except ConfigurationError as error:
        raise BuildError(str(error)) from error
    if manifest is None:
        raise BuildError(f"{repository} has no {MANIFEST_FILE}: `specdec build render` writes one")
    return manifest
