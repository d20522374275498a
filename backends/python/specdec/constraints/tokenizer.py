"""Read a checkpoint's tokenizer in llguidance's form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.constraints.compiler import GuideCompiler
from specdec.errors import UnsupportedError
from specdec.extras import advice_on

if TYPE_CHECKING:
    from llguidance import LLTokenizer


def compiler_for(checkpoint: Path, vocab_size: int) -> GuideCompiler:
    """Return a compiler for the model in a folder, whose logits have `vocab_size` columns."""
    return GuideCompiler(partial(read_tokenizer, checkpoint, vocab_size))


def read_tokenizer(checkpoint: Path, vocab_size: int) -> LLTokenizer:
    """Return the tokenizer of a checkpoint, which takes half a second.

    Raises UnsupportedError without llguidance, and if the folder has no tokenizer.json that
    llguidance can read, or names no end token.
    """
    try:
        from llguidance import LLTokenizer  # noqa: PLC0415 - an optional package
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"guides: {advice_on(error, 'torch')}") from None
    try:
        text = (checkpoint / "tokenizer.json").read_text("utf-8")
        end_ids = sorted(set(_end_ids(checkpoint, json.loads(text))))
        if not end_ids:
            raise UnsupportedError(f"guides need an end token; {checkpoint} names none")
        return LLTokenizer(text, n_vocab=vocab_size, eos_token=end_ids)
    except (OSError, ValueError) as error:
        raise UnsupportedError(
            f"guides need a tokenizer.json that llguidance reads; {checkpoint}: {error}"
        ) from None


def _end_ids(checkpoint: Path, tokenizer: dict[str, Any]) -> Iterator[int]:
    """Yield the end tokens that the files of a checkpoint name."""
    for name in ("config.json", "generation_config.json"):
        found = _read(checkpoint / name).get("eos_token_id")
        if found is not None:
            yield from found if isinstance(found, list) else [found]
    named = _read(checkpoint / "tokenizer_config.json").get("eos_token")
    content = named.get("content") if isinstance(named, dict) else named
    added = tokenizer.get("added_tokens") or []
    yield from (each["id"] for each in added if each["content"] == content)


def _read(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is no such file."""
    try:
        content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content
