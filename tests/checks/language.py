"""Checks the English of docstrings, comments, messages, test names and documentation.

python -m tests.checks.language          # exit code 1 if it finds a fault
python -m tests.checks.language --all    # the code that is not clean yet too, with counts
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = (
    "backends/python/specdec",
    "builder",
    "clients",
    "docs",
    "loadtest",
    "model_repository",
    "tests",
)
"""Folders whose Python, C and CUDA files are checked."""
NOT_CLEAN_YET = ("backends/python/specdec",)
"""Folders of CODE that only `--all` checks, because their words are still being rewritten. Remove
a folder here once `--all` counts no fault in it."""
PAGES = ("*.md", "docs/*.md", "builder/**/*.md", "loadtest/results/README.md")
"""Pages of the documentation."""
SKIPPED = (
    "builder/pairs/BROKEN.md",  # made of messages, which are checked where they are written
    "tests/checks/language.py",  # these two quote the faults
    "tests/unit/checks/test_language_check.py",
)
MAX_SENTENCE_WORDS = 40

OPENING = re.compile(r"\s*(Of|In which|That|Whose|To be|By|What|Who)\b")
"""Beginnings of docstrings that are no sentence about the thing that they describe."""

# The retired expression, as a regular expression, and what to write instead (docs/glossary.md).
RETIRED = {
    r"strangers?": "cross-vocabulary draft",
    r"crowd(?:s|ed)?": "load, requests in flight",
    r"the article(?:'?s)?": 'the guide "Speculative Decoding for LLM Acceleration"',
    r"teach(?:es|ing)?|taught": "train, tell",
    r"(?:the|a|an|each|every|by|no|its|of) leads?": "drafter",
    r"guess(?:es|ed|ing)?": "draft token, propose",
    r"(?:tokens?|drafts?|of them|they|all) (?:stand|stands|stood)": "is accepted",
    r"behind (?:an?|the|its|every|each|one|all) (?:\w+ )?"
    r"(?:answer|context|draft|match|miss|prompt|restart|round|text|token|word)s?": "after",
    r"nobody (?:copies|drafts|proposes|speculates)": "no drafter, no request",
    r"whoever (?:copies|drafts|proposes|speculates)": "the drafter",
    r"in (?:any )?company": "beside other requests",
    r"so (?:many|much|long|often) (?:\w+ ){0,4}as": "as … as, while",
    r"as far as": "if, where",
}
# Words that are ordinary in a sentence, but have a private sense in the name of a test.
RETIRED_IN_NAMES = {
    r"behind": "after",
    r"stands?|stood": "is accepted",
    r"leads?(?! (?:from|to))": "drafter",
    r"nobody": "no drafter, no request",
}


class Kind(Enum):
    """Where a text comes from, which decides what is looked for in it."""

    DOCSTRING = auto()
    TEXT = auto()
    TEST_NAME = auto()
    PROSE = auto()


@dataclass(frozen=True)
class Passage:
    """A text of a file, with the line on which it begins."""

    kind: Kind
    line: int
    text: str


@dataclass(frozen=True)
class Fault:
    """An expression to replace, and what to write instead."""

    line: int
    found: str
    better: str


def _compiled(words: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(r"\b(?:" + each.replace(" ", r"\s+") + r")\b", re.IGNORECASE), better)
        for each, better in words.items()
    ]


WORDS, NAME_WORDS = _compiled(RETIRED), _compiled(RETIRED | RETIRED_IN_NAMES)


def faults_of(suffix: str, source: str) -> list[Fault]:
    """Return the faults of a Python, C or Markdown file, in order of their lines."""
    found = (fault for each in _passages_of(suffix, source) for fault in _faults_in(each))
    return sorted(found, key=lambda fault: fault.line)


def _faults_in(passage: Passage) -> Iterator[Fault]:
    if passage.kind is Kind.DOCSTRING and (opening := OPENING.match(passage.text)):
        yield Fault(passage.line, opening[1], "begin with a verb or a noun")
    for word, better in NAME_WORDS if passage.kind is Kind.TEST_NAME else WORDS:
        for match in word.finditer(passage.text):
            yield Fault(_line_of(passage, match.start()), " ".join(match[0].split()), better)
    if passage.kind is Kind.PROSE:
        for sentence in re.finditer(r"\S.*?(?:[.!?:;](?=\s)|\Z)", passage.text, re.DOTALL):
            if len(words := re.findall(r"\w[\w'’.-]*", sentence[0])) > MAX_SENTENCE_WORDS:
                beginning = f"{' '.join(words[:4])} …"
                better = f"{len(words)} words: split the sentence"
                yield Fault(_line_of(passage, sentence.start()), beginning, better)


def _line_of(passage: Passage, offset: int) -> int:
    return passage.line + passage.text.count("\n", 0, offset)


def _passages_of(suffix: str, source: str) -> Iterator[Passage]:
    if suffix == ".py":
        yield from _python_passages(source)
    elif suffix == ".md":
        yield from _prose_passages(source)
    else:
        for match in re.finditer(r"/\*.*?\*/|//[^\n]*", source, re.DOTALL):
            yield Passage(Kind.TEXT, source.count("\n", 0, match.start()) + 1, match[0])


def _python_passages(source: str) -> Iterator[Passage]:
    tree = ast.parse(source)
    docstrings = {
        id(each.value)
        for each in ast.walk(tree)
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_docstring = id(node) in docstrings
            if is_docstring or len(node.value.split()) > 1:  # one word alone is a key or a name
                kind = Kind.DOCSTRING if is_docstring else Kind.TEXT
                yield Passage(kind, node.lineno, _without_code(node.value))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Passage(Kind.TEST_NAME, node.lineno, node.name.replace("_", " "))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(Kind.TEXT, token.start[0], _without_code(token.string))


def _prose_passages(source: str) -> Iterator[Passage]:
    """Yield paragraphs, list items and table cells, without code and the targets of links."""
    source = re.sub(
        r"\A---\n.*?\n---\n|^```.*?^```", _blank, source, flags=re.DOTALL | re.MULTILINE
    )
    source = re.sub(r"\[\w+\]\([^)\s]*\)", "x", _without_code(source))  # a name, not a word
    source = re.sub(r"(?<=\])\([^)\s]*\)", "", source)
    begin = r"\n(?=\s*(?:[-*] |\d+\. |#|\||\n))"  # a list item, heading, table row or blank line
    line = 1
    for block in re.split(f"({begin})", source):
        for cell in block.split(" | ") if block.lstrip().startswith("|") else [block]:
            if cell.strip():
                start = line + block.count("\n", 0, len(block) - len(block.lstrip()))
                yield Passage(Kind.PROSE, start, cell.strip())
        line += block.count("\n")


def _without_code(text: str) -> str:
    return re.sub(r"`[^`]*`", lambda match: "\n".join("x" for _ in match[0].split("\n")), text)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _code_of(folder: str) -> list[Path]:
    return [path for kind in ("py", "c", "h", "cu") for path in (ROOT / folder).rglob(f"*.{kind}")]


def main(arguments: list[str] | None = None) -> int:
    """Print each fault as file:line: found → better, and return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.language")
    parser.add_argument("--all", action="store_true", help="check the code not clean yet, too")
    is_all = parser.parse_args(arguments).all

    files = {"pages": [path for pattern in PAGES for path in ROOT.glob(pattern)]}
    files |= {each: _code_of(each) for each in CODE if is_all or each not in NOT_CLEAN_YET}
    counts = dict.fromkeys(files, 0)
    for folder, paths in files.items():
        for path in sorted(paths):
            name = path.relative_to(ROOT).as_posix()
            source = "" if name in SKIPPED else path.read_text("utf-8")
            for fault in faults_of(path.suffix, source):
                print(f"{name}:{fault.line}: {fault.found} → {fault.better}")
                counts[folder] += 1
    if is_all:
        print("\n".join(f"{count:5} in {folder}" for folder, count in counts.items()))
    print(f"{sum(counts.values())} faults in {sum(map(len, files.values()))} files")
    return 1 if any(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
