"""The pages of the documentation are linked, complete, and agree with the code."""

import dataclasses
import re
from collections import defaultdict
from typing import get_type_hints

import pytest

from specdec.cli import COMMANDS
from specdec.loadtest.lab.benches import BENCHES
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import parameter_names
from specdec.settings.torch_engine import EngineModelSettings
from tests.contract.declared import ROOT
from tests.contract.tables import (
    COUNTERS,
    ERROR_TYPES,
    GAUGES,
    HISTOGRAMS,
    MAKE_TARGETS,
    PORT_VARIABLES,
    SPECDEC_INPUTS,
    SPECDEC_OUTPUTS,
)

DOCS = ROOT / "docs"
FRONT_PAGE = ROOT / "README.md"
MAX_FRONT_PAGE_BYTES = 8192
PAGES = [
    FRONT_PAGE,
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "builder").rglob("*.md")),
    ROOT / "loadtest" / "results" / "README.md",
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
BENCH = re.compile(r"specdec bench ([a-z_]+)")
MODULE = re.compile(r"`((?:[\w.-]+/)*\w+\.py)`")
CODE = ("backends", "builder", "clients", "docs", "loadtest", "model_repository", "tests")
"""Folders with the modules that the pages name."""
UNDOCUMENTED_ERRORS = {"draft_timeout"}
"""Error types that no client gets: a round goes on without a draft that comes too late."""


def rows_of(*names):
    """Return the table rows of these pages in docs/, by each name in backticks in the first cell.

    Rows with the same name are joined.
    """
    rows = defaultdict(str)
    for page in names:
        for line in (DOCS / page).read_text("utf-8").splitlines():
            if line.startswith("|"):
                for name in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                    rows[name] += line
    return rows


def anchors_of(page):
    """Return the anchors of a page's headings, as GitHub and MkDocs form them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", each.lower()) for each in headings)
    return {each.strip().replace(" ", "-") for each in plain}


def test_front_page_is_short():
    """README.md has at most 8192 bytes, so that a newcomer reads it in one sitting."""
    assert FRONT_PAGE.stat().st_size <= MAX_FRONT_PAGE_BYTES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page):
    """Each link within the repository names an existing file, and an existing heading of it."""
    broken = []
    for link in LINK.findall(page.read_text("utf-8")):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        linked = page.parent / target if target else page
        if not linked.exists() or (anchor and anchor not in anchors_of(linked)):
            broken.append(link)

    assert broken == []


def test_every_module_named_on_a_page_exists():
    """A module in backticks, with all or the last folders of its path, is one of the tree's."""
    modules = [
        f"/{each.relative_to(ROOT)}" for name in CODE for each in (ROOT / name).rglob("*.py")
    ]
    named = {
        (page.name, module)
        for page in (FRONT_PAGE, ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md"))
        for module in MODULE.findall(page.read_text("utf-8"))
    }

    assert {module for _, module in named} >= {"loop.py"}
    missing = [each for each in named if not any(path.endswith(f"/{each[1]}") for path in modules)]
    assert missing == []


def test_every_bench_that_is_named_exists():
    """A bench named on a page, in a config.pbtxt or in the first line of a result is in BENCHES."""
    pages = [FRONT_PAGE, ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")]
    configurations = list((ROOT / "model_repository").glob("*/config.pbtxt"))
    named = {
        (path.name, bench)
        for path in [*pages, *configurations]
        for bench in BENCH.findall(path.read_text("utf-8"))
    }
    for path in (ROOT / "loadtest" / "results").glob("*.md"):
        first_line = path.read_text("utf-8").splitlines()[0]
        named |= {(path.name, bench) for bench in BENCH.findall(first_line)}

    assert named >= {("README.md", "exact"), ("counters.md", "counters")}
    assert configurations
    assert [each for each in named if each[1] not in BENCHES] == []


def test_front_page_leads_to_every_page():
    """README.md links to every page of docs/."""
    front_page = FRONT_PAGE.read_text("utf-8")

    hidden = [each.name for each in DOCS.glob("*.md") if f"(docs/{each.name}" not in front_page]
    assert hidden == []


def test_api_pages_have_every_tensor_with_its_type():
    """The tables have every input and output of the model `specdec`."""
    rows = rows_of("api.md", "sampling.md")
    types = {
        name: tensor.data_type.removeprefix("TYPE_")
        for name, tensor in (SPECDEC_INPUTS | SPECDEC_OUTPUTS).items()
    }

    assert [name for name, data_type in types.items() if data_type not in rows[name]] == []


def test_api_page_has_every_error_with_its_code():
    """The table has every error type that a client can get, with its Triton code."""
    rows = rows_of("api.md")
    known = {name: code for name, code in ERROR_TYPES.items() if name not in UNDOCUMENTED_ERRORS}

    assert [name for name, code in known.items() if code not in rows[name]] == []


@pytest.mark.parametrize("model", ["specdec", "target", "draft"])
def test_configuration_page_has_every_parameter_with_its_default(configurations, model):
    """The defaults are the values in the shipped config.pbtxt."""
    rows = rows_of("configuration.md")
    defaults = {
        name: f"`{parameter.string_value}`" if parameter.string_value else "empty"
        for name, parameter in configurations[model].parameters.items()
    }
    assert [name for name, default in defaults.items() if default not in rows[name]] == []


def test_configuration_page_has_a_table_for_each_group_of_settings():
    """The sections on the model `specdec` have the parameters of the groups, in the same order."""
    page = (DOCS / "configuration.md").read_text("utf-8")
    sections = page.split("## The model specdec")[1].split("## The models")[0].split("### ")[1:]
    tables = [re.findall(r"^\| `(\w+)`", section, re.MULTILINE) for section in sections]

    groups = get_type_hints(OrchestratorSettings).values()
    assert tables == [list(parameter_names(group)) for group in groups]


def test_configuration_page_has_every_lower_limit():
    """The ranges in the tables begin where the settings do."""
    rows = rows_of("configuration.md")
    kinds = (*get_type_hints(OrchestratorSettings).values(), EngineModelSettings)
    limits = [
        (field.metadata.get("name") or field.name, field.metadata["minimum"])
        for kind in kinds
        for field in dataclasses.fields(kind)
        if field.metadata.get("minimum") is not None
    ]

    assert ("inflight_limit", 1) in limits
    wrong = [each for each in limits if not re.search(rf"\| {each[1]} (or|to) ", rows[each[0]])]
    assert wrong == []


def test_operate_page_has_every_metric():
    """The tables have every counter, gauge and histogram by its name."""
    assert (COUNTERS | GAUGES | HISTOGRAMS) - rows_of("operate.md").keys() == set()


def test_pages_name_every_command():
    """The pages together name each make target, each command and each port variable."""
    everything = "".join(page.read_text("utf-8") for page in PAGES)
    words = [
        *(f"make {target}" for target in MAKE_TARGETS),
        *(f"specdec {command}" for command in COMMANDS),
        *PORT_VARIABLES,
    ]

    # "make test" is not named by "make test-gpu".
    whole = [rf"{re.escape(word)}(?![\w-])" for word in words]
    assert [each for each in whole if not re.search(each, everything)] == []
