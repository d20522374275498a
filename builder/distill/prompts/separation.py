"""Keeping the prompts that measure a draft out of its training.

Texts are compared by runs of words, in lower case and without punctuation. Two texts that share a
run of RUN words count as copies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from specdec.builder.errors import BuildError

RUN = 8
"""Words in a row that make two texts copies."""
MEASURED = Path(__file__).parents[3] / "loadtest" / "prompts"
"""Folder of the prompts that the load tests measure with."""


def runs(text: str) -> Iterator[tuple[str, ...]]:
    """Yield all runs of RUN words; a shorter text is one run."""
    words = re.findall(r"\w+", text.lower())
    for start in range(max(1, len(words) - RUN + 1)):
        yield tuple(words[start : start + RUN])


def shared(first: Iterable[str], second: Iterable[str]) -> list[tuple[str, str]]:
    """Return (text, run) for each text of `first` that shares a run with a text of `second`."""
    known = {run for text in second for run in runs(text)}
    found = ((text, run) for text in first for run in runs(text) if run in known)
    return [(text, " ".join(run)) for text, run in dict(found).items()]


def texts_of(path: Path) -> list[str]:
    """Return the user's texts in a JSONL file: `prompt`, `turns`, or `messages` of role user."""
    texts: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts += [str(turn) for turn in row.get("turns", [])]
        texts += [str(row["prompt"])] if "prompt" in row else []
        texts += [m["content"] for m in row.get("messages", []) if m["role"] == "user"]
    return texts


def separate(pairs: list[tuple[str, str]], excluded: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the (kind, text) pairs that share no run of words with a prompt of the load tests.

    `excluded` holds more texts that must not be trained on. Raises BuildError if the prompts of the
    load tests are missing.
    """
    measured = [text for file in MEASURED.glob("*.jsonl") for text in texts_of(file)]
    if not measured:
        raise BuildError(
            f"{MEASURED} holds no prompts: those that measure a draft cannot be kept out of its "
            "training"
        )
    measured += excluded
    copies = {text for text, _ in shared([text for _, text in pairs], measured)}
    return [(kind, text) for kind, text in pairs if text not in copies]
