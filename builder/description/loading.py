"""Loading a pair's description from a pair file or by the name of a shipped pair."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from specdec.builder.description.engine import EngineDescription
from specdec.builder.description.pair import PairDescription
from specdec.builder.description.reading import from_table, read_toml
from specdec.builder.description.shape import ModelShape
from specdec.builder.errors import BuildError

BUILDER_DIRECTORY = Path(__file__).parents[1]
PAIRS_DIRECTORY = BUILDER_DIRECTORY / "pairs"
SHAPES_FILE = BUILDER_DIRECTORY / "shapes.toml"
GPUS_FILE = BUILDER_DIRECTORY / "gpus.toml"


def known_pairs() -> list[str]:
    """Return the names of the shipped pairs, sorted."""
    return sorted(file.stem for file in PAIRS_DIRECTORY.glob("*.toml"))


def load_description(pair: str | Path) -> PairDescription:
    """Read a pair file, or the shipped pair of that name.

    Paths in the file are relative to its folder. Raises BuildError for an unknown name, or for a
    file with errors.
    """
    file = pair_file(pair)
    return description_from(read_toml(file), file)


def pair_file(pair: str | Path) -> Path:
    """Return the path of the pair file. Raises BuildError for a name that is not shipped."""
    is_file = str(pair).endswith(".toml")
    if not is_file and len(Path(pair).parts) != 1:
        raise BuildError(
            f"{pair} is not a pair file: name one that ends in .toml, or a shipped pair"
        )
    file = Path(pair) if is_file else PAIRS_DIRECTORY / f"{pair}.toml"
    if file.parent == PAIRS_DIRECTORY and not file.is_file():
        raise BuildError(f"no pair {file.stem!r}; known: {', '.join(known_pairs())}")
    return file


def description_from(table: dict[str, Any], file: Path) -> PairDescription:
    """Create the description from a pair file's tables. Raises BuildError for errors in them."""
    table = dict(table)
    where = file.name
    if "target" not in table:
        raise BuildError(f"{where} lacks 'target'")
    target = _engine("target", table.pop("target"), f"{where}: [target]", file)
    drafts = tuple(
        _engine(name, draft, f"{where}: [drafts.{name}]", file)
        for name, draft in _table(table, "drafts", where).items()
    )
    tasks = tuple(_table(table, "tasks", where).items())
    if isinstance(table.get("gpu"), str):
        table["gpu"] = {"name": table["gpu"]} | _known(GPUS_FILE, table["gpu"], f"{where}: gpu")
    pair = from_table(
        PairDescription, table, where, name=file.stem, target=target, drafts=drafts, tasks=tasks
    )
    head = pair.self_speculation
    if head is not None:
        head = dataclasses.replace(
            head, checkpoint=_beside(file, head.checkpoint), stored=_beside(file, head.stored)
        )
    return dataclasses.replace(pair, self_speculation=head)


def known_shape(name: str, where: str = "shape") -> ModelShape:
    """Return the shape of that name. Raises BuildError if shapes.toml does not have it."""
    return from_table(ModelShape, _known(SHAPES_FILE, name, where), f"{SHAPES_FILE.name}: {name}")


@cache
def known_shapes() -> dict[str, ModelShape]:
    """Return all shapes in shapes.toml, by name."""
    return {name: known_shape(name) for name in read_toml(SHAPES_FILE)}


def _engine(name: str, table: Any, where: str, file: Path) -> EngineDescription:
    if not isinstance(table, dict):
        raise BuildError(f"{where} must be a table; given {table!r}")
    if isinstance(table.get("shape"), str):
        table = table | {"shape": _known(SHAPES_FILE, table["shape"], f"{where}: shape")}
    engine = from_table(EngineDescription, table, where, name=name)
    return dataclasses.replace(
        engine, checkpoint=_beside(file, engine.checkpoint), stored=_beside(file, engine.stored)
    )


def _table(tables: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    found = tables.pop(key, {})
    if not isinstance(found, dict):
        raise BuildError(f"{where}: {key} must be a table; given {found!r}")
    return found


def _beside(file: Path, path: Path | None) -> Path | None:
    return None if path is None else file.parent / path


def _known(file: Path, name: str, where: str) -> dict[str, Any]:
    tables = read_toml(file)
    if name not in tables:
        raise BuildError(f"{where}: {name!r} is not in {file.name}; known: {', '.join(tables)}")
    found: dict[str, Any] = tables[name]
    return found
