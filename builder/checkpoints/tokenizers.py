"""Comparison of two tokenizers: the ids of probe texts, vocabularies and chat templates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from specdec.builder.errors import BuildError

PROBE_TEXTS = {
    "words": "The quick brown fox doesn't jump over 12 lazy dogs; it rests, antidisestablishment.",
    "code": "def f(x):\n\treturn [i ** 2 for i in range(x)]  # squares\n\n\nSELECT a WHERE b;\n",
    "unicode": "na\u00efve façade, Привет, 世界! ٣٫١٤ नमस्ते 🚀 👩\u200d🔬 e\u0301 \u00a0\u200b",
    "whitespace": "  two  spaces\ttab\n\n\nthree lines \r\n trailing   ",
    "numbers": "3.14159 1,000,000 2024-10-31 0x7fff 1e-9 12345678901234567890 ½",
    "special tokens": "<|im_start|>user\nhi<|im_end|>\n<s>done</s><|endoftext|><|eot_id|>[INST]",
}
"""Texts in which tokenizers tend to differ, by the kind of difference."""

TOKENIZER, TEMPLATE = "tokenizer.json", "chat_template.jinja"
_NUM_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two tokenizers."""

    kind: str
    """Kind of difference: "probe", "vocabulary", "special tokens" or "chat template"."""
    text: str
    """Description for people, with the first few differing tokens."""


def differences(target: Path, draft: Path) -> Iterator[Difference]:
    """Yield the differences between the tokenizers of two Hugging Face directories.

    Kinds come in the order of their cost: probe, vocabulary, special tokens, chat template, with
    one difference for each. Raises BuildError if one has no readable tokenizer.json.
    """
    mine, other = read_tokenizer(target), read_tokenizer(draft)
    for kind, text in PROBE_TEXTS.items():
        ids, other_ids = (each.encode(text).ids for each in (mine, other))
        if ids != other_ids:
            yield Difference("probe", _first_difference(kind, ids, other_ids))
            break
    yield from _vocabulary(mine.get_vocab(), other.get_vocab())
    yield from _special_tokens(mine, other)
    if chat_template(target) != chat_template(draft):
        yield Difference(
            "chat template",
            f"the chat templates differ ({_named(target)} and {_named(draft)}); the target's "
            "is used for requests",
        )


def probe_difference(target: Path, draft: Path) -> str | None:
    """Describe how the ids of a probe text differ; None if all are the same.

    Raises BuildError if a directory has no readable tokenizer.json.
    """
    for each in differences(target, draft):
        return each.text if each.kind == "probe" else None
    return None


def chat_template(directory: Path) -> str | None:
    """Return the chat template, from its own file or tokenizer_config.json; None without one."""
    try:
        return (directory / TEMPLATE).read_text("utf-8").strip()
    except OSError:
        pass
    try:
        table = json.loads((directory / "tokenizer_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    found = table.get("chat_template")
    return found.strip() if isinstance(found, str) else None


def count_tokens(directory: Path) -> int:
    """Return the number of tokens in the tokenizer, added ones included.

    Raises BuildError if the directory has no readable tokenizer.json.
    """
    return int(read_tokenizer(directory).get_vocab_size(with_added_tokens=True))


@cache
def read_tokenizer(directory: Path) -> Tokenizer:
    """Return the tokenizer. Raises BuildError if there is no readable tokenizer.json."""
    file = directory / TOKENIZER
    if not file.is_file():
        raise BuildError(f"{directory} has no {TOKENIZER}")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise BuildError(f"{file} cannot be read: {error}") from error


def _first_difference(kind: str, ids: list[int], other: list[int]) -> str:
    pairs = zip(ids, other, strict=False)
    shorter = min(len(ids), len(other))
    at = next((i for i, (one, two) in enumerate(pairs) if one != two), shorter)
    return f"token {at} of a probe text ({kind}) is {ids[at : at + 1]} against {other[at : at + 1]}"


def _vocabulary(mine: dict[str, int], other: dict[str, int]) -> Iterator[Difference]:
    if mine == other:
        return
    moved = [piece for piece in mine if piece in other and mine[piece] != other[piece]]
    lacking = [piece for piece in mine if piece not in other]
    added = [piece for piece in other if piece not in mine]
    for vocabulary, pieces in ((mine, moved), (mine, lacking), (other, added)):
        pieces.sort(key=vocabulary.__getitem__)
    parts = [
        f"{len(pieces):,} {what}{_shown(pieces)}"
        for pieces, what in (
            (moved, "have other ids"),
            (lacking, "are only the target's"),
            (added, "are only the draft's"),
        )
        if pieces
    ]
    yield Difference("vocabulary", f"of {len(mine):,} tokens {'; '.join(parts)}")


def _special_tokens(mine: Tokenizer, other: Tokenizer) -> Iterator[Difference]:
    tokens, others = (
        {number: str(token.content) for number, token in each.get_added_tokens_decoder().items()}
        for each in (mine, other)
    )
    if tokens == others:
        return
    ids = sorted(each for each in {*tokens, *others} if tokens.get(each) != others.get(each))
    shown = ", ".join(
        f"{each} is {tokens.get(each)!r} against {others.get(each)!r}" for each in ids[:_NUM_SHOWN]
    )
    yield Difference("special tokens", f"{len(ids)} special tokens differ: {shown}")


def _shown(pieces: list[str]) -> str:
    return (
        f" ({', '.join(map(repr, pieces[:_NUM_SHOWN]))}{' …' if len(pieces) > _NUM_SHOWN else ''})"
    )


def _named(directory: Path) -> str:
    """Return the directory's name, with a remark if it has no chat template."""
    return directory.name if chat_template(directory) else f"{directory.name}: none"
