"""Modules import only from their own package and from lower ones, and never in a circle."""

import pytest

from tests.checks.imports import ROOT, circle_in, grouped, imports_of, lines_between, packages_of

ORDER = (
    (
        "errors",
        "extras",
        "folders",
        "metrics_page",
        "parent_process",
        "round_records",
        "rounds",
        "token_ids",
        "token_texts",
    ),
    ("constraints", "health"),
    ("acceptance",),
    ("torch_engine",),
    ("engines.wire",),
    ("engines",),
    ("estimates",),
    ("steering",),
    ("tasks",),
    ("drafting",),
    ("loop",),
    ("settings",),
    ("drafter_building",),
    ("batch_drafting",),
    ("deployment",),
    ("batch_engines",),
    ("triton_backend",),
    ("engine_model",),
    ("serving",),
    ("clients",),
    ("gateway",),
    ("launch",),
    ("builder",),
    ("loadtest",),
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
    ("preparing",),
    ("engine",),
)
SERVING_ORDER = (
    ("tracing", "metrics", "request"),
    ("text", "admission", "control_plane"),
    ("task_labels", "llmapi_requests"),
    ("request_context", "job"),
    ("answer_metrics", "outputs"),
    ("drafters", "answer"),
    ("job_builder", "responder"),
    ("assembly",),
    ("orchestrator",),
)
GATEWAY_ORDER = (
    ("settings", "probe", "metrics", "tool_calls"),
    ("openai_api",),
    ("transport",),
    ("generation", "models", "server_metrics"),
    ("answering",),
    ("app",),
    ("worker",),
    ("workers",),
    ("cli",),
)

ORDERS = {
    "specdec": ORDER,
    "specdec.gateway": GATEWAY_ORDER,
    "specdec.torch_engine": TORCH_ENGINE_ORDER,
    "specdec.serving": SERVING_ORDER,
}
SPECDEC = imports_of("specdec", ROOT / "backends/python")


@pytest.mark.parametrize("package", ORDERS)
def test_each_module_and_package_has_a_level(package):
    """A new one is entered in the order, and one that is gone is removed from it."""
    named = {name.split(".")[0] for names in ORDERS[package] for name in names}
    assert named == set(grouped(SPECDEC, package)) - {"__init__"}


@pytest.mark.parametrize("package", ORDERS)
def test_imports_go_down(package):
    """No module imports from a package of a higher level."""
    level = {f"{package}.{name}": n for n, names in enumerate(ORDERS[package]) for name in names}
    upward = [
        f"{name} imports {other}"
        for name, imported in SPECDEC.items()
        if name.startswith(f"{package}.")
        for other in imported
        if _level_of(name, level) < _level_of(other, level)
    ]
    assert not upward


def test_modules_import_in_no_circle():
    """Modules that import each other can only be read and tested together."""
    assert not lines_between(circle_in(SPECDEC))


def test_packages_import_in_no_circle():
    """Within every package, its modules and subpackages form no circle either."""
    circles = {
        package: lines_between(circle)
        for package in packages_of(SPECDEC)
        if (circle := circle_in(grouped(SPECDEC, package)))
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
        "room/1.py": "from house import roof",
    }.items():
        (tmp_path / "house" / name).write_text(text)
    imports = imports_of("house", tmp_path)
    assert imports["house.roof"] == {"house.door", "house.__init__"}
    assert imports["house.door"] == {"house.room.wall"}
    assert set(circle_in(imports)) == {"house.door", "house.room.wall"}
    assert set(circle_in(grouped(imports, "house"))) == {"door", "room"}
    assert packages_of(imports) == ["house", "house.room"]


def _level_of(module, level):
    """Return the level of the longest name that holds the module; -1 if none does."""
    parts = module.split(".")
    holders = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((level[each] for each in holders if each in level), -1)
