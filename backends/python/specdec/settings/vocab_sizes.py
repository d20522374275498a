"""Read the vocabulary sizes of engines whose sizes differ from the tokenizer's."""

from __future__ import annotations

from typing import NamedTuple

from specdec.errors import ConfigurationError


class VocabSize(NamedTuple):
    """The vocabulary size of one engine."""

    num_tokens: int
    num_columns: int
    """Columns of the engine's logits. These may be padded, so it is at least `num_tokens`."""


def read_vocab_sizes(text: str) -> dict[str, VocabSize]:
    """Parse comma-separated entries `model=tokens:columns` and return the sizes by model.

    Raises ConfigurationError for an entry of another form or with fewer columns than tokens.
    """
    sizes = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        model, _, numbers = entry.partition("=")
        parts = numbers.split(":")
        if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
            raise ConfigurationError(
                f"engine_vocab_sizes must be a list of model=tokens:columns; given {entry!r}"
            )
        size = VocabSize(*map(int, parts))
        if size.num_columns < size.num_tokens:
            raise ConfigurationError(
                f"engine_vocab_sizes: {model} cannot have fewer columns ({size.num_columns}) than "
                f"tokens ({size.num_tokens})"
            )
        sizes[model.strip()] = size
    return sizes
