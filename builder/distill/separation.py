"""Proof that what is trained on and what is measured with have nothing in common.

Texts are compared by runs of words, lower case and without punctuation: two texts that share a run
of RUN words are taken for copies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

RUN = 8
MEASURED = Path(__file__).parents[2] / "loadtest" / "prompts"


def runs(text: str) -> Iterator[tuple[str, ...]]:
    """All runs of RUN words; a shorter text is one run."""
    words = re.findall(r"\w+", text.lower())
    for start in range(max(1, len(words) - RUN + 1)):
        yield tuple(words[start : start + RUN])


def shared(first: Iterable[str], second: Iterable[str]) -> list[tuple[str, str]]:
    """(text of `first`, run that stands in `second` too): one for each such text."""
    known = {run for text in second for run in runs(text)}
    found = ((text, run) for text in first for run in runs(text) if run in known)
    return [(text, " ".join(run)) for text, run in dict(found).items()]


def texts_of(path: Path) -> list[str]:
    """The user's texts of a JSONL file: `prompt`, `turns`, or `messages` of role user."""
    texts: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts += [str(turn) for turn in row.get("turns", [])]
        texts += [str(row["prompt"])] if "prompt" in row else []
        texts += [m["content"] for m in row.get("messages", []) if m["role"] == "user"]
    return texts


def unmeasured(pairs: list[tuple[str, str]], never: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Without texts that have a run of words in common with a prompt we measure with."""
    measured = [text for file in MEASURED.glob("*.jsonl") for text in texts_of(file)]
    measured += never
    copies = {text for text, _ in shared([text for _, text in pairs], measured)}
    return [(kind, text) for kind, text in pairs if text not in copies]
