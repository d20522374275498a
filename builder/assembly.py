"""Filling a model repository with weights: import the target, assemble draft and head."""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from builder.checks import check_pair
from builder.errors import BuildError
from builder.fingerprint import fingerprint
from builder.outputs import is_current, replaced
from builder.pair import ImportedModel, Pair
from builder.sources import fetch, file_sha256
from specdec.serving.freshness import write_fingerprint
from specdec.serving.versions import CHECKPOINT
from specdec.serving.versions import HEAD as HEAD_FOLDER

WEIGHTS = Path("1") / CHECKPOINT
HEAD = Path("1") / HEAD_FOLDER
"""Folders of a model, relative to it: its weights, and the target's EAGLE-3 or Medusa head."""

# Raise these when the same input gives another directory. Older directories are then
# built again.
IMPORT_FORMAT = "2"
ASSEMBLY_FORMAT = "1"


def build_pair(pair: Pair, model_repository: Path, cache: Path, *, force: bool = False) -> None:
    """Write the weights of target, head and draft into the model repository.

    Directories that were made from the same input are kept, unless `force` is set. If the pair's
    draft is not stored yet, a notice is printed and it is left out. `cache` is the folder for
    downloads. Raises BuildError if weights cannot be downloaded, or draft or head does not fit.
    """
    target = model_repository / "target" / WEIGHTS
    draft = model_repository / "draft" / WEIGHTS
    made_target = import_model(pair.target, target, cache, force=force)
    if pair.head is not None:
        fill_head(pair.head.directory, target, model_repository / "target" / HEAD, force=force)
    if pair.draft is None:
        return
    if not (pair.draft.directory / "config.json").is_file():
        print(f"notice: the pair {pair.name} has no stored draft yet; {draft} is left out")
        return
    made_from = {
        "draft": directory_sha256(pair.draft.directory),
        "target": pair.target.source.sha256,
        "format": ASSEMBLY_FORMAT,
    }
    if not made_target and not force and is_current(draft, made_from):
        print(f"{draft}: up to date ({pair.draft.name})")
        return
    with _reported(draft, pair.draft.name), replaced(draft, made_from) as new:
        assemble_draft(pair.draft.directory, target, new)
        report = check_pair(target, new)
    print(
        f"pair {pair.name}: draft {report.num_draft_parameters / 1e6:.1f}M parameters, target "
        f"{report.num_target_parameters / 1e6:.1f}M ({report.size_ratio:.0%}), "
        f"vocabulary {report.vocab_size}"
    )


def assemble_draft(stored: Path, target: Path, output: Path) -> None:
    """Write a whole draft to `output`: its stored layers, and the parts it shares with the target.

    Raises BuildError if the draft was made for another target, or PyTorch is missing.
    """
    checkpoints = _checkpoints("builder.distill.checkpoint", "draft")
    try:
        checkpoints.assemble(stored, target, output)
    except ValueError as error:
        raise BuildError(f"the stored draft {stored} does not fit: {error}") from error


def fill_head(head: Path, target: Path, place: Path, *, force: bool = False) -> None:
    """Write the head in the engine's format to `place`, unless it is there and up to date.

    Raises BuildError if the head is incomplete or made for another target, or PyTorch is missing.
    """
    made_from = {"head": directory_sha256(head), "format": ASSEMBLY_FORMAT}
    if not force and is_current(place, made_from):
        print(f"{place}: up to date")
        return
    module = _checkpoints("builder.heads.checkpoint", "head")
    with _reported(place, head.name), replaced(place, made_from) as new:
        try:
            module.assemble(head, target, new)
        except (OSError, ValueError) as error:
            raise BuildError(f"the head {head} cannot be used: {error}") from error


def import_model(model: ImportedModel, output: Path, cache: Path, *, force: bool = False) -> bool:
    """Write the model to the Hugging Face directory `output`; return whether it was written.

    It is not written if `output` is up to date, unless `force` is set. Raises BuildError if the
    model cannot be downloaded or read.
    """
    made_from = {"sha256": model.source.sha256, "format": IMPORT_FORMAT}
    if not force and is_current(output, made_from):
        print(f"{output}: up to date ({model.name})")
        return False
    file = fetch(model.source, cache)
    print(
        f"converting {model.name} ({file.stat().st_size / 1e6:.0f} MB {model.form}) "
        "to bf16 safetensors",
        flush=True,
    )
    with _reported(output, model.name), replaced(output, made_from) as new:
        _importer(model.form)(file, new)
        write_fingerprint(new, fingerprint(new))
    return True


def directory_sha256(directory: Path) -> str:
    """Return a SHA-256 over names and contents of all files in a directory, hexadecimal."""
    digest = hashlib.sha256()
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(directory)}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()


def _importer(form: str) -> Callable[[Path, Path], None]:
    """Return the import function for a form, imported here because torch is slow to import."""
    if form == "onnx":
        from builder.onnx_import import import_onnx_package  # noqa: PLC0415

        return import_onnx_package
    if form == "llama2c":
        from builder.llama2c_import import import_llama2c  # noqa: PLC0415

        return import_llama2c
    from builder.gguf_import import import_gguf  # noqa: PLC0415

    return import_gguf


def _checkpoints(name: str, what: str) -> ModuleType:
    """Return the module `name`, imported here because it needs torch, which may be missing.

    Raises BuildError if a module is missing; `what` names what cannot be assembled.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise BuildError(f"the {what} cannot be assembled: {error}") from error


@contextmanager
def _reported(output: Path, name: str) -> Iterator[None]:
    """Print how long the block took to write `output`."""
    started_s = time.monotonic()
    yield
    print(f"{output}: {name}, written in {time.monotonic() - started_s:.1f} s")
