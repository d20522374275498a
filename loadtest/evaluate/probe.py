"""Compare the token ids that target and draft model give to a domain's own texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

EXCERPT = 24
"""Characters that are shown from the first difference on."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The comparison of two tokenizers on the texts of one domain."""

    num_texts: int
    num_alike: int
    first_difference: str
    """The text from the first different token on; empty if there is none."""


def find_tokenizer(repository: Path, model: str) -> Path | None:
    """Return the tokenizer.json of the newest version of an engine model that has one.

    Returns None if the model has no tokenizer, or is not in `repository`.
    """
    versions = [each for each in (repository / model).glob("*") if each.name.isdigit()]
    for version in sorted(versions, key=lambda each: -int(each.name)):
        file = version / "checkpoint" / "tokenizer.json"
        if file.is_file():
            return file
    return None


def compare(target: Path, draft: Path, texts: Sequence[str]) -> Probe:
    """Compare the ids that two files tokenizer.json give the texts, position by position."""
    tokenizers = [Tokenizer.from_file(str(file)) for file in (target, draft)]
    num_alike, first = 0, ""
    for text in texts:
        ours, theirs = (
            tokenizer.encode(text, add_special_tokens=False) for tokenizer in tokenizers
        )
        if ours.ids == theirs.ids:
            num_alike += 1
        elif not first:
            pairs = zip(ours.ids, theirs.ids, strict=False)
            position = next((i for i, (a, b) in enumerate(pairs) if a != b), len(ours.ids) - 1)
            start = ours.offsets[position][0]
            first = text[start : start + EXCERPT]
    return Probe(len(texts), num_alike, first)
