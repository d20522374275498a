"""A pair of models as a description file states it, and the models known besides."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.errors import BuildError
from builder.sources import PackageSource

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BUILDER_DIRECTORY = Path(__file__).parent
PAIRS_DIRECTORY = BUILDER_DIRECTORY / "pairs"
MODELS_FILE = BUILDER_DIRECTORY / "models.toml"
DEFAULT_PAIR = "smollm2_135m"
FORMS = ("gguf", "onnx", "llama2c")


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model whose weights come out of a package registry.

    `form` says what its file is: "gguf", "onnx" for an npm archive with an ONNX export, or
    "llama2c" for a model of llama2.c followed by its tokenizer.
    Raises BuildError for another form.
    """

    name: str
    licence: str
    form: str
    source: PackageSource

    def __post_init__(self) -> None:
        """Check what a description file may have wrong."""
        if self.form not in FORMS:
            raise BuildError(f"form must be one of: {', '.join(FORMS)}; given: {self.form!r}")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ImportedModel:
        """Read a model's table; raises BuildError if a key is missing."""
        try:
            source = PackageSource.from_table(table["source"])
            return cls(table["name"], table["licence"], table["form"], source)
        except KeyError as error:
            raise BuildError(f"the description lacks {error.args[0]!r}") from error


@dataclass(frozen=True, slots=True)
class StoredDraft:
    """A draft whose weights are kept in the repository; `directory` may not exist yet."""

    name: str
    licence: str
    directory: Path


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, the draft made for it, and the head that drafts on its states, if there is one."""

    name: str
    target: ImportedModel
    draft: StoredDraft
    head: StoredDraft | None = None


def load_pair(name: str = DEFAULT_PAIR, pairs_directory: Path = PAIRS_DIRECTORY) -> Pair:
    """Read pairs/NAME/pair.toml; raises BuildError if it is unknown or incomplete."""
    file = pairs_directory / name / "pair.toml"
    if not file.is_file():
        known = sorted(path.parent.name for path in pairs_directory.glob("*/pair.toml"))
        raise BuildError(f"no pair {name!r}; known: {', '.join(known) or 'none'}")
    table = _read(file)
    try:
        draft, head = (
            StoredDraft(stored["name"], stored["licence"], file.parent / stored["directory"])
            if stored is not None
            else None
            for stored in (table["draft"], table.get("head"))
        )
        assert draft is not None
        target = ImportedModel.from_table(table["target"])
        return Pair(name=name, target=target, draft=draft, head=head)
    except KeyError as error:
        raise BuildError(f"{file.name} of the pair {name!r} lacks {error.args[0]!r}") from error


def known_models(
    models_file: Path = MODELS_FILE, pairs_directory: Path = PAIRS_DIRECTORY
) -> dict[str, ImportedModel]:
    """Return what can be imported by name: the models of models.toml and the pairs' targets."""
    models = {name: ImportedModel.from_table(table) for name, table in _read(models_file).items()}
    for file in sorted(pairs_directory.glob("*/pair.toml")):
        models[file.parent.name] = load_pair(file.parent.name, pairs_directory).target
    return models


def _read(file: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BuildError(f"{file} is no TOML: {error}") from error
    return table
