"""The models of a torch pair whose weights `specdec build pair` can obtain by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.description import TORCH, load_description
from builder.description.loading import BUILDER_DIRECTORY
from builder.description.reading import read_toml
from builder.errors import BuildError
from builder.sources import PackageSource

MODELS_FILE = BUILDER_DIRECTORY / "models.toml"
DEFAULT_PAIR = "smollm2_135m"
FORMS = ("gguf", "onnx", "llama2c")


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model whose weights come from a package registry.

    `form` is the file's format: "gguf", "onnx" for an npm archive with an ONNX export, or
    "llama2c" for a llama2.c model followed by its tokenizer. Raises BuildError for another form.
    """

    name: str
    licence: str
    form: str
    source: PackageSource

    def __post_init__(self) -> None:
        """Raise BuildError for an unknown form."""
        if self.form not in FORMS:
            raise BuildError(f"form must be one of: {', '.join(FORMS)}; given: {self.form!r}")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ImportedModel:
        """Create a model from its table in models.toml. Raises BuildError if a key is missing."""
        try:
            source = PackageSource.from_table(table["source"])
            return cls(table["name"], table["licence"], table["form"], source)
        except KeyError as error:
            raise BuildError(f"the description lacks {error.args[0]!r}") from error


@dataclass(frozen=True, slots=True)
class StoredDraft:
    """A draft model or head stored beside the pair file; `directory` may not exist yet."""

    name: str
    licence: str
    directory: Path


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with the draft model and the head made for it, either of which may be missing."""

    name: str
    target: ImportedModel
    draft: StoredDraft | None = None
    head: StoredDraft | None = None


def load_pair(pair: str | Path = DEFAULT_PAIR) -> Pair:
    """Return the weights that a shipped pair or a pair file names.

    If several draft models are stored, the last one counts. Raises BuildError if the pair is
    unknown, has no torch engines, or its target is not one of models.toml.
    """
    description = load_description(pair)
    target = description.target
    if description.engine != TORCH or target.imported is None:
        raise BuildError(
            f"the weights of {description.name} are not to be had here: `build pair` fills torch "
            f"engines whose target is `imported`, and these are {description.engine} engines of "
            f"{target.model}"
        )
    models = known_models()
    if target.imported not in models:
        raise BuildError(f"no model {target.imported!r}; known: {', '.join(models)}")
    draft, head = None, None
    for each in description.drafts:
        if each.stored is not None:
            draft = StoredDraft(each.model, each.licence, each.stored)
    own = description.self_speculation
    if own is not None and own.stored is not None:
        head = StoredDraft(own.name, own.licence, own.stored)
    return Pair(description.name, models[target.imported], draft, head)


def known_models(models_file: Path = MODELS_FILE) -> dict[str, ImportedModel]:
    """Return the models that can be imported, by name. Raises BuildError for a bad file."""
    tables = read_toml(models_file)
    return {name: ImportedModel.from_table(table) for name, table in tables.items()}
