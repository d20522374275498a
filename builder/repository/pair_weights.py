"""The models of a torch pair whose weights `specdec build pair` can obtain by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.builder.description import TORCH, load_description
from specdec.builder.errors import BuildError
from specdec.builder.importing.models import ImportedModel, known_model

DEFAULT_PAIR = "smollm2_135m"


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

    Raises BuildError if the pair is unknown, has no torch engines, stores several draft models, or
    if its target is not one of models.toml.
    """
    description = load_description(pair)
    target = description.target
    if description.engine != TORCH or target.imported is None:
        raise BuildError(
            f"`build pair` cannot obtain the weights of {description.name}: it fills torch engines "
            f"whose target is `imported`, and these are {description.engine} engines of "
            f"{target.model}"
        )
    stored = [
        StoredDraft(each.model, each.licence, each.stored)
        for each in description.drafts
        if each.stored is not None
    ]
    if len(stored) > 1:
        names = ", ".join(each.name for each in stored)
        raise BuildError(
            f"`build pair` fills one draft model, and {description.name} stores {len(stored)}: "
            f"{names}; use `specdec build render`"
        )
    draft, head = (stored[0] if stored else None), None
    own = description.self_speculation
    if own is not None and own.stored is not None:
        head = StoredDraft(own.name, own.licence, own.stored)
    return Pair(description.name, known_model(target.imported), draft, head)
