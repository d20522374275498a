"""The models that can be imported from package registries, from `models.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.builder.description.loading import BUILDER_DIRECTORY
from specdec.builder.description.reading import read_toml
from specdec.builder.errors import BuildError
from specdec.builder.importing.packages import PackageSource

MODELS_FILE = BUILDER_DIRECTORY / "models.toml"
FORMATS = ("gguf", "onnx", "llama2c")


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model whose weights come from a package registry.

    Raises BuildError for an unknown format.
    """

    name: str
    licence: str
    form: str
    """Format of the file: "gguf", "onnx" for an npm archive with an ONNX export, or "llama2c" for a
    llama2.c model followed by its tokenizer."""
    source: PackageSource

    def __post_init__(self) -> None:
        """Raise BuildError for an unknown format."""
        if self.form not in FORMATS:
            raise BuildError(f"form must be one of: {', '.join(FORMATS)}; given {self.form!r}")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ImportedModel:
        """Create a model from its table in models.toml. Raises BuildError if a key is missing."""
        try:
            source = PackageSource.from_table(table["source"])
            return cls(table["name"], table["licence"], table["form"], source)
        except KeyError as error:
            raise BuildError(f"the description lacks {error.args[0]!r}") from error


def known_models(models_file: Path = MODELS_FILE) -> dict[str, ImportedModel]:
    """Return the models that can be imported, by name. Raises BuildError for a bad file."""
    tables = read_toml(models_file)
    return {name: ImportedModel.from_table(table) for name, table in tables.items()}


def known_model(name: str) -> ImportedModel:
    """Return the model of that name. Raises BuildError if models.toml does not have it."""
    models = known_models()
    if name not in models:
        raise BuildError(f"no model {name!r}; known: {', '.join(models)}")
    return models[name]
