"""The samples on a metrics page in Prometheus' text format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_LABEL = r'[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"'
_LABELS = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
# Name, labels in braces, value, and the time in ms that some servers add.
_SAMPLE = re.compile(
    rf"([a-zA-Z_:][\w:]*)(?:\{{((?:{_LABEL},?)*)\}})?\s+(\S+)(?:\s+-?\d+)?", re.ASCII
)
_ESCAPED = re.compile(r"\\(.)")


class Sample(NamedTuple):
    """One line of the page: a value, and what it belongs to."""

    name: str
    """Name of the metric; those of histograms end in `_bucket`, `_sum` and `_count`."""
    labels: Mapping[str, str]
    value: float


def samples_on(page: str) -> Iterator[Sample]:
    """Yield the samples on the page in order. Raises ValueError for a line in another format."""
    for line in map(str.strip, page.split("\n")):
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            raise ValueError(f"the line {line[:80]!r} is not in Prometheus' text format")
        name, labels, value = match.groups()
        pairs = {label: _unescaped(text) for label, text in _LABELS.findall(labels or "")}
        yield Sample(name, pairs, float(value))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
