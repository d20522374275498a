"""Tests of the language check: it finds each kind of fault, and only there."""

import pytest

from tests.checks import language
from tests.checks.language import MAX_SENTENCE_WORDS, faults_of, main

LONG = f"It says {'very ' * MAX_SENTENCE_WORDS}much."

PLANTED = {
    "docstring of a function": (".py", 'def f():\n    """Of a request."""\n', 2, "Of"),
    "docstring of a constant": (".py", 'A = 1\n"""What it holds."""\n', 2, "What"),
    "docstring of a class": (".py", 'class A:\n    """\n    Two strangers."""\n', 3, "strangers"),
    "comment": (".py", "a = 1\nb = 2  # under a crowd\n", 2, "crowd"),
    "message": (".py", "raise ValueError(f'{n} guesses given')\n", 1, "guesses"),
    "test name": (".py", "\ndef test_a_crowd_waits(): ...\n", 2, "crowd"),
    "word of test names only": (".py", "def test_behind_two(): ...\n", 1, "behind"),
    "comment in C": (".c", "int a;\n/* one\n * as far as it fits */\n", 3, "as far as"),
    "expression over two lines": (
        ".md",
        "It copies so\nmany tokens as fit.\n",
        1,
        "so many tokens as",
    ),
    "list item": (".md", "It can:\n\n- copy behind a match\n- wait\n", 3, "behind a match"),
    "table": (".md", "| a | b |\n|---|---|\n| c | taught here |\n", 3, "taught"),
    "long sentence": (".md", f"# Title\n\nShort. {LONG}\n", 3, "It says very very …"),
}

PLAIN = {
    "prose": (".md", "This leads to Triton's engine. Behind it stands an interface.\n"),
    "code in prose": (".md", "The mode `article`.\n\n```\nguess\n```\n\nSee [crowd](crowd.md).\n"),
    "long table row": (".md", f"| {'word ' * 30}| {'word ' * 30}|\n"),
    "long list": (".md", "".join(f"- {'word ' * 30}\n" for _ in range(3))),
    "key": (".py", "a = b['guesses']\n"),
    "identifiers": (".py", 'def guess(crowd):\n    """Return `crowd`."""\n'),
    "test name": (".py", "def test_link_leads_to_every_page(): ...\n"),
    "code in C": (".h", "int guess(int crowd);\n"),
}


@pytest.mark.parametrize(("suffix", "source", "line", "found"), PLANTED.values(), ids=PLANTED)
def test_planted_fault_is_found_on_its_line(suffix, source, line, found):
    """There is one fault, with its line and the words to replace."""
    (fault,) = faults_of(suffix, source)

    assert (fault.line, fault.found) == (line, found)


@pytest.mark.parametrize(("suffix", "source"), PLAIN.values(), ids=PLAIN)
def test_plain_text_passes(suffix, source):
    """Code, names and ordinary uses of a word are no faults."""
    assert faults_of(suffix, source) == []


def test_faults_of_code_and_pages_are_printed_and_fail(tmp_path, monkeypatch, capsys):
    """The exit status is 1 if there is a fault, else 0."""
    (tmp_path / "room").mkdir()
    code = tmp_path / "room" / "a.py"
    code.write_text("# a stranger\n")
    (tmp_path / "README.md").write_text("Plain text.\n")
    for name, value in {"ROOT": tmp_path, "CODE": ("room",)}.items():
        monkeypatch.setattr(language, name, value)

    assert main() == 1
    assert "room/a.py:1: stranger → cross-vocabulary draft\n" in capsys.readouterr().out
    code.write_text("# a drafter\n")
    assert main() == 0
