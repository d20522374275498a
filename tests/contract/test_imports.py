"""Modules import each other in one direction only, type annotations included."""

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "backends" / "python"
ENGINE = "specdec.torch_engine"
LAYERS_OF_ENGINE = (
    *("config", "layers", "sampler", "task", "heads", "native", "gpu", "parts", "model"),
    *("scheduling", "engine"),
)
"""Modules and packages of the engine; each imports only from those before it, and from itself."""


def modules():
    """Return the path of each module by its name."""
    paths = {}
    for path in (SOURCES / "specdec").rglob("*.py"):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        paths[".".join(parts).removesuffix(".__init__")] = path
    return paths


@pytest.fixture(scope="module")
def imports():
    """Return the modules that each module imports, in functions and for types too."""
    paths = modules()
    found = {name: set() for name in paths}
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{each.name}" for each in node.names]
                found[name] |= {each if each in paths else node.module for each in names}
            elif isinstance(node, ast.Import):
                found[name] |= {each.name for each in node.names}
        found[name] &= paths.keys() - {name}
    return found


def test_no_modules_import_each_other(imports):
    """Modules that import nothing of the rest are taken away until none is left, or a circle is."""
    left = dict(imports)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]

    assert not left


def test_engine_imports_downwards(imports):
    """Each part of the torch engine knows only the parts below it."""
    for name, others in imports.items():
        if not name.startswith(f"{ENGINE}."):
            continue
        part = name.split(".")[2]
        for other in others:
            if other.startswith(f"{ENGINE}."):
                rank = LAYERS_OF_ENGINE.index(other.split(".")[2])
                assert rank <= LAYERS_OF_ENGINE.index(part), f"{name} imports {other}"
