"""The modules of a folder and their imports of each other."""

from __future__ import annotations

import ast
import graphlib
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]

Imports = Mapping[str, frozenset[str]]
"""The names of the modules that each module imports, by module name."""


def imports_of(package: str, root: Path = ROOT) -> Imports:
    """Return which modules of `package` import which others, those within functions included.

    `root` is the folder that holds the package. A package is named like its `__init__`, so
    `specdec.tasks.__init__` is the module that `import specdec.tasks` runs.
    """
    modules = dict(sorted(_modules(package, root)))
    return {
        name: frozenset(_imported(ast.parse(path.read_text("utf-8")), modules)) - {name}
        for name, path in modules.items()
    }


def grouped(imports: Imports, package: str) -> Imports:
    """Return the imports between the children of `package`: its modules and subpackages.

    Children are named without the package. Imports from and to other packages are left out.
    """
    start = f"{package}."
    children: dict[str, set[str]] = {}
    for name in imports:
        if name.startswith(start):
            child = name.removeprefix(start).split(".")[0]
            found = children.setdefault(child, set())
            found |= {
                other.removeprefix(start).split(".")[0]
                for other in imports[name]
                if other.startswith(start)
            }
    return {child: frozenset(found - {child}) for child, found in children.items()}


def packages_of(imports: Imports) -> list[str]:
    """Return the names of the packages that hold the modules, with their parents."""
    parents = {name.rpartition(".")[0] for name in imports}
    return sorted(
        {".".join(each.split(".")[: n + 1]) for each in parents for n in range(each.count(".") + 1)}
    )


def circle_in(imports: Imports) -> list[str]:
    """Return the names on a circle, the first one again at the end; empty if there is none."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        circle: list[str] = error.args[1]
        return circle[::-1]
    return []


def reduced(imports: Imports) -> Imports:
    """Return the imports without those that follow from others (a transitive reduction).

    Raises graphlib.CycleError if there is a circle.
    """
    reached: dict[str, frozenset[str]] = {}
    for name in graphlib.TopologicalSorter(imports).static_order():
        below = imports.get(name, frozenset())
        reached[name] = below.union(*(reached[each] for each in below))
    return {
        name: frozenset(
            each for each in below if not any(each in reached[other] for other in below)
        )
        for name, below in imports.items()
    }


def depths(imports: Imports) -> dict[str, int]:
    """Return the length of the longest chain of imports that begins at each name."""
    found: dict[str, int] = {}
    for name in graphlib.TopologicalSorter(imports).static_order():
        found[name] = 1 + max((found[each] for each in imports.get(name, ())), default=-1)
    return found


def lines_between(circle: list[str]) -> list[str]:
    """Return each step of a circle as `a imports b`."""
    return [f"{name} imports {other}" for name, other in pairwise(circle)]


def _modules(package: str, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each module, also in folders that are links."""
    for folder, _, files in os.walk(root / package, followlinks=True):
        for path in (Path(folder) / file for file in files if file.endswith(".py")):
            parts = path.relative_to(root).with_suffix("").parts
            # A folder such as `1` in a model repository holds no modules of a package.
            if all(part.isidentifier() for part in parts):
                yield ".".join(parts), path


def _imported(tree: ast.Module, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parent = node.module or ""
            names = [f"{parent}.{alias.name}" for alias in node.names]
            # A name that is no module is defined in `parent`.
            names = [each if _found(each, modules) else parent for each in names]
        else:
            continue
        yield from filter(None, (_found(each, modules) for each in names))


def _found(name: str, modules: Mapping[str, Path]) -> str | None:
    return next((each for each in (name, f"{name}.__init__") if each in modules), None)
