"""The folder of results stays small, and its page names what is in it."""

import json
import re

from tests.contract.declared import ROOT

RESULTS = ROOT / "loadtest" / "results"
GPU = RESULTS / "gpu"
"""The folder of runs on a GPU, which has a summary of its own."""
MAX_BYTES, MAX_FILE_BYTES = 500_000, 120_000
MAX_ENTRIES = 300
"""Entries of the longest list or object in a result: single answers are more."""
KNOWN = {"command", "commit", "processor", "finished_at"}
"""Conditions without which a figure means nothing."""
FILES = sorted(path for path in RESULTS.rglob("*") if path.is_file())


def links_of(path):
    """Return the files that a Markdown page links to, below its own folder or elsewhere."""
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text("utf-8"))
    return [path.parent / each for each in targets if not re.match(r"\w+:", each)]


def test_folder_stays_small():
    """All results together, pictures included."""
    assert sum(path.stat().st_size for path in FILES) <= MAX_BYTES


def test_files_stay_small():
    """A bench that writes single answers into its result is seen here."""
    assert [path.name for path in FILES if path.stat().st_size > MAX_FILE_BYTES] == []


def test_results_hold_figures():
    """No list is as long as the answers of a run, and a result says how it was made."""
    wrong = []
    for path in FILES:
        if path.suffix == ".json" and GPU not in path.parents:
            content = json.loads(path.read_text("utf-8"))
            if longest(content) > MAX_ENTRIES or not content["conditions"].keys() >= KNOWN:
                wrong.append(path.name)

    assert wrong == []


def longest(value):
    """Return the number of entries of the longest list or object, however deep."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max([len(value), *map(longest, inner)])


def test_page_names_every_result():
    """Links and files are the same; the page's links to other folders lead somewhere too."""
    page = RESULTS / "README.md"
    linked = links_of(page)

    assert [str(each) for each in linked if not each.exists()] == []
    own = {each for each in FILES if each.parent == RESULTS} - {page}
    assert {each for each in linked if each.parent == RESULTS} == own


def test_front_page_links_to_results_that_exist():
    """Tables and pictures that README.md shows are there."""
    linked = [each for each in links_of(ROOT / "README.md") if RESULTS in each.parents]

    assert [str(each) for each in linked if not each.is_file()] == []
