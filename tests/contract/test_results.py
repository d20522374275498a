"""The folder of benchmark results stays small, and its page links to every result."""

import json
import re

from tests.contract.declared import ROOT

RESULTS = ROOT / "loadtest" / "results"
GPU = RESULTS / "gpu"
"""Folder of runs on a GPU, which has a summary of its own."""
MAX_BYTES, MAX_FILE_BYTES = 500_000, 120_000
MAX_ENTRIES = 300
"""Most entries of a list or object in a result; a list of single answers is longer."""
KNOWN = {"command", "commit", "processor", "finished_at"}
"""Conditions that every result must record."""
FILES = sorted(path for path in RESULTS.rglob("*") if path.is_file())


def links_of(path):
    """Return the paths of all files that a Markdown page links to."""
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text("utf-8"))
    return [path.parent / each for each in targets if not re.match(r"\w+:", each)]


def test_folder_stays_small():
    """All results together, pictures included, have at most 500 kB."""
    assert sum(path.stat().st_size for path in FILES) <= MAX_BYTES


def test_files_stay_small():
    """Each file has at most 120 kB, which a result with single answers exceeds."""
    assert [path.name for path in FILES if path.stat().st_size > MAX_FILE_BYTES] == []


def test_results_hold_figures_and_their_conditions():
    """No list is as long as the answers of a run, and each result records its conditions."""
    wrong = []
    for path in FILES:
        if path.suffix == ".json" and GPU not in path.parents:
            content = json.loads(path.read_text("utf-8"))
            if longest(content) > MAX_ENTRIES or not content["conditions"].keys() >= KNOWN:
                wrong.append(path.name)

    assert wrong == []


def longest(value):
    """Return the number of entries of the longest list or object at any depth."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max([len(value), *map(longest, inner)])


def test_page_names_every_result():
    """The page links to every result of its folder."""
    page = RESULTS / "README.md"

    own = {each for each in FILES if each.parent == RESULTS} - {page}
    assert {each for each in links_of(page) if each.parent == RESULTS} == own


def test_commands_write_the_files_in_which_they_are():
    """The option --name of a command is the name of its files, and both have the same command."""
    wrong = []
    for path in FILES:
        if path.suffix == ".json" and GPU not in path.parents:
            command = json.loads(path.read_text("utf-8"))["conditions"]["command"]
            first_line = path.with_suffix(".md").read_text("utf-8").splitlines()[0]
            name = re.search(r" --name (\S+)", command)
            if first_line != f"`{command}`" or (name and name[1] != path.stem):
                wrong.append(path.name)

    assert wrong == []
