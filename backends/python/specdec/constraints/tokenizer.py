"""Read a checkpoint's tokenizer in llguidance's form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.constraints.compiler import GuideCompiler
from specdec.errors import UnsupportedError
from specdec.extras import advice_on

if TYPE_CHECKING:
    from llguidance import LLTokenizer


PRIVATE = "\ue000"
"""Character for private use, which no text has."""


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
        tokenizer = json.loads((checkpoint / "tokenizer.json").read_text("utf-8"))
        end_ids = sorted(set(_end_ids(checkpoint, tokenizer)))
        if not end_ids:
            raise UnsupportedError(f"guides need an end token; {checkpoint} names none")
        _rename_special_tokens(tokenizer)
        _move_text_tokens(tokenizer)
        return LLTokenizer(json.dumps(tokenizer), n_vocab=vocab_size, eos_token=end_ids)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedError(
            f"guides need a tokenizer.json that llguidance reads; {checkpoint}: {error}"
        ) from None


def _rename_special_tokens(tokenizer: dict[str, Any]) -> None:
    """Give special tokens names that no text has.

    llguidance encodes text that a guide forces. A text such as `<|im_end|>` must not become the
    special token of that name, which is never part of an answer's text.
    """
    names = {
        each["content"]: f"{PRIVATE}{each['id']}{PRIVATE}"
        for each in tokenizer.get("added_tokens") or []
        if each["special"]
    }
    for each in tokenizer.get("added_tokens") or []:
        each["content"] = names.get(each["content"], each["content"])
    model = tokenizer["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(text, text): token for text, token in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(text, text), *rest] for text, *rest in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    # It would add special tokens by their names, and forced text gets none.
    tokenizer["post_processor"] = None


def _move_text_tokens(tokenizer: dict[str, Any]) -> None:
    """Put added tokens that are text, such as Qwen's `<tool_call>`, among the usual tokens.

    llguidance takes every added token in angle brackets for a special one, which no answer may
    have.
    """
    vocabulary, added = tokenizer["model"]["vocab"], tokenizer.get("added_tokens") or []
    if not isinstance(vocabulary, dict):
        return  # A list has its tokens by position, and these have later ones.
    spelled = _spelling(json.dumps(tokenizer.get("decoder")))
    for each in added:
        if not each["special"]:
            vocabulary.setdefault(spelled(each["content"]), each["id"])
    tokenizer["added_tokens"] = [each for each in added if each["special"]]


def _spelling(decoder: str) -> Callable[[str], str]:
    """Return a function that writes a text as a vocabulary does whose decoder is this JSON."""
    if '"ByteLevel"' not in decoder:
        return lambda text: text.replace(" ", "\u2581")  # as SentencePiece
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # noqa: PLC0415 - slow

    characters: dict[int, str] = bytes_to_unicode()  # type: ignore[no-untyped-call]
    return lambda text: "".join(characters[byte] for byte in text.encode())


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
