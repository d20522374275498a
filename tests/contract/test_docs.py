"""The pages of the documentation: short, linked, and saying the same as the code."""

import re
from collections import defaultdict

import pytest

from specdec.cli import COMMANDS
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
UNDOCUMENTED_ERRORS = {"configuration", "draft_timeout"}
"""These reach no client: a server with a wrong setting does not start, and a round goes on without
a draft that is late."""


def rows_of(*names):
    """Return the table rows of pages of docs/, by each name in backticks in the first cell."""
    rows = defaultdict(str)
    for page in names:
        for line in (DOCS / page).read_text("utf-8").splitlines():
            if line.startswith("|"):
                for name in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                    rows[name] += line
    return rows


def anchors_of(page):
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", each.lower()) for each in headings)
    return {each.strip().replace(" ", "-") for each in plain}


def test_front_page_is_short():
    """A newcomer reads it in one sitting."""
    assert FRONT_PAGE.stat().st_size <= MAX_FRONT_PAGE_BYTES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    """To a file that is there, and to a heading of it."""
    broken = []
    for link in LINK.findall(page.read_text("utf-8")):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        linked = page.parent / target if target else page
        if not linked.exists() or (anchor and anchor not in anchors_of(linked)):
            broken.append(link)

    assert broken == []


def test_front_page_leads_to_every_page():
    """No page is hidden."""
    front_page = FRONT_PAGE.read_text("utf-8")

    hidden = [each.name for each in DOCS.glob("*.md") if f"(docs/{each.name}" not in front_page]
    assert hidden == []


def test_api_pages_have_every_tensor_with_its_type():
    """Inputs and outputs of the model `specdec`."""
    rows = rows_of("api.md", "sampling.md")
    types = {
        name: tensor.data_type.removeprefix("TYPE_")
        for name, tensor in (SPECDEC_INPUTS | SPECDEC_OUTPUTS).items()
    }

    assert [name for name, data_type in types.items() if data_type not in rows[name]] == []


def test_api_page_has_every_error_with_its_code():
    """What a client may get."""
    rows = rows_of("api.md")
    known = {name: code for name, code in ERROR_TYPES.items() if name not in UNDOCUMENTED_ERRORS}

    assert [name for name, code in known.items() if code not in rows[name]] == []


@pytest.mark.parametrize("model", ["specdec", "target", "draft"])
def test_configuration_page_has_every_parameter_with_its_default(configurations, model):
    """What stands in the config.pbtxt that is shipped."""
    rows = rows_of("configuration.md")
    defaults = {
        name: f"`{parameter.string_value}`" if parameter.string_value else "empty"
        for name, parameter in configurations[model].parameters.items()
    }
    assert [name for name, default in defaults.items() if default not in rows[name]] == []


def test_operate_page_has_every_metric():
    """The names on which dashboards are built."""
    assert (COUNTERS | GAUGES | HISTOGRAMS) - rows_of("operate.md").keys() == set()


def test_pages_name_every_command():
    """A newcomer finds each command and each port."""
    everything = "".join(page.read_text("utf-8") for page in PAGES)
    words = [
        *(f"make {target}" for target in MAKE_TARGETS),
        *(f"specdec {command}" for command in COMMANDS),
        *PORT_VARIABLES,
    ]

    assert [word for word in words if word not in everything] == []
