"""Counts the numbers written into Python files, which somebody had to choose.

python -m tests.checks.constants backends/python/specdec/steering

Literals other than 0, ±1 and 2 count, wherever they are. Numeric defaults of dataclass fields, such
as those of settings, are counted apart, and count whatever their value.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FREE = (0, 1, 2)
"""Values of literals that nobody has to choose; -1 is the literal 1 with a sign."""


@dataclass(frozen=True)
class Count:
    """The numbers in one file, or in several."""

    num_literals: int = 0
    """Literals outside of FREE, without the defaults."""
    num_defaults: int = 0
    """Defaults of dataclass fields."""

    def __add__(self, other: Count) -> Count:
        return Count(self.num_literals + other.num_literals, self.num_defaults + other.num_defaults)


def constants_of(source: str) -> Count:
    """Return the count of a Python file with the text `source`."""
    tree = ast.parse(source)
    defaults = {id(each) for value in _defaults(tree) for each in _numbers(value)}
    literals = [
        each for each in _numbers(tree) if id(each) not in defaults and each.value not in FREE
    ]
    return Count(len(literals), len(defaults))


def _defaults(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(map(_is_dataclass, node.decorator_list)):
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and each.value is not None:
                    yield each.value


def _is_dataclass(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).split("(")[0].rpartition(".")[2] == "dataclass"


def _numbers(tree: ast.AST) -> Iterator[ast.Constant]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and type(each.value) in {int, float, complex}:
            yield each


def _files(paths: Iterable[Path]) -> list[Path]:
    return sorted(
        {each for path in paths for each in (path.rglob("*.py") if path.is_dir() else [path])}
    )


def main() -> None:
    """Print the count of each file that has numbers, and their sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, help="Python files and folders")
    total = Count()
    print("literals  defaults")
    for path in _files(parser.parse_args().paths):
        count = constants_of(path.read_text("utf-8"))
        total += count
        if count != Count():
            print(f"{count.num_literals:8}  {count.num_defaults:8}  {path}")
    print(f"{total.num_literals:8}  {total.num_defaults:8}  total")


if __name__ == "__main__":
    main()
