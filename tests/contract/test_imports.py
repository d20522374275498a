"""Modules import only from their own package and from lower ones, and never in a circle."""

import pytest

from tests.checks.imports import ROOT, circle_in, grouped, imports_of, lines_between, packages_of

ORDER = (
    ("errors", "rounds", "token_texts"),
    ("acceptance", "health"),
    ("torch_engine",),
    ("engines.wire",),
    ("engines",),
    ("estimates",),
    ("steering",),
    ("tasks",),
    ("drafting",),
    ("loop",),
    ("settings",),
    ("deployment",),
    ("triton_backend",),
    ("engine_model",),
    ("serving",),
    ("launch",),
    ("cli",),
    ("__main__",),
)
"""The packages and modules of specdec, from low to high. Those of one level may import each
other."""

TORCH_ENGINE_ORDER = (
    ("config",),
    ("layers",),
    ("sampler",),
    ("task",),
    ("heads",),
    ("native", "gpu"),
    ("parts",),
    ("model",),
    ("scheduling",),
    ("engine",),
)
SERVING_ORDER = (
    ("tracing", "metrics", "request"),
    ("text", "admission", "control_plane"),
    ("task_labels", "cross_vocabulary", "llmapi_requests"),
    ("request_context", "job"),
    ("drafters", "answer"),
    ("job_builder",),
    ("orchestrator",),
)

SPECDEC = imports_of("specdec", ROOT / "backends/python")
TREES = {"specdec": SPECDEC} | {
    each: imports_of(each) for each in ("builder", "clients", "loadtest")
}


@pytest.mark.parametrize(
    ("package", "order"),
    [
        ("specdec", ORDER),
        ("specdec.torch_engine", TORCH_ENGINE_ORDER),
        ("specdec.serving", SERVING_ORDER),
    ],
)
def test_imports_go_down(package, order):
    """An import from a higher level breaks the order, and so does a package that has no level."""
    level = {f"{package}.{name}": n for n, names in enumerate(order) for name in names}
    # What every module of a package may import: the package's own names.
    level[f"{package}.__init__"] = -1
    upward, unknown = [], set()
    for name, imported in SPECDEC.items():
        for other in imported if name.startswith(f"{package}.") else ():
            if other.startswith(f"{package}."):
                mine, theirs = _unit(name, level), _unit(other, level)
                unknown |= {each for each in (mine or name, theirs or other) if each not in level}
                if mine and theirs and mine != theirs and level[mine] < level[theirs]:
                    upward.append(f"{name} imports {other}")
    assert not unknown
    assert not upward


@pytest.mark.parametrize("tree", TREES)
def test_modules_import_in_no_circle(tree):
    """Modules that import each other can only be read and tested together."""
    assert not lines_between(circle_in(TREES[tree]))


@pytest.mark.parametrize("tree", TREES)
def test_packages_import_in_no_circle(tree):
    """Within every package, its modules and subpackages form no circle either."""
    circles = {
        package: lines_between(circle)
        for package in packages_of(TREES[tree])
        if (circle := circle_in(grouped(TREES[tree], package)))
    }
    assert not circles


def test_imports_are_found(tmp_path):
    """The check sees imports of modules, of names in modules and packages, and within functions."""
    (tmp_path / "house" / "room").mkdir(parents=True)
    for name, text in {
        "__init__.py": "SIZE = 1",
        "door.py": "def opened():\n    from house.room import wall",
        "roof.py": "import house.door\nfrom house import SIZE, door\nimport json",
        "room/__init__.py": "",
        "room/wall.py": "from house.door import opened",
    }.items():
        (tmp_path / "house" / name).write_text(text)
    imports = imports_of("house", tmp_path)
    assert imports["house.roof"] == {"house.door", "house.__init__"}
    assert imports["house.door"] == {"house.room.wall"}
    assert set(circle_in(imports)) == {"house.door", "house.room.wall"}
    assert set(circle_in(grouped(imports, "house"))) == {"door", "room"}
    assert packages_of(imports) == ["house", "house.room"]


def _unit(name, level):
    """Return the package or module of `level` that holds `name`, the longest one; None if none."""
    parts = name.split(".")
    longest_first = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((each for each in longest_first if each in level), None)
