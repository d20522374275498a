"""Read from a checkpoint's tokenizer which bytes of text each token represents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specdec.errors import UnsupportedError

_PRINTABLE = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
_HIDDEN = sorted(set(range(256)) - _PRINTABLE)
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + number): byte for number, byte in enumerate(_HIDDEN)
}
"""Bytes by the characters that represent them in a byte-level vocabulary (GPT-2's encoder.py)."""

_WORD_START = "\u2581"
"""SentencePiece's character for a space."""


def read_token_texts(checkpoint: Path, vocab_size: int) -> list[bytes]:
    """Return the bytes [vocab_size] that each token adds to a text, none for special tokens.

    Raise UnsupportedError if there is no readable tokenizer.json, or if its decoder is of an
    unknown kind. Known are byte-level BPE and SentencePiece, with or without byte tokens.
    """
    try:
        tokenizer = json.loads((checkpoint / "tokenizer.json").read_text("utf-8"))
        kinds = _decoders(tokenizer["decoder"] or {"type": "nothing"})
        vocabulary = tokenizer["model"]["vocab"]
        added = tokenizer.get("added_tokens") or []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedError(
            f"{checkpoint} has no tokenizer whose tokens can be read: {error}"
        ) from None
    if not kinds & {"ByteLevel", "Metaspace", "Replace", "ByteFallback"}:
        raise UnsupportedError(
            f"the tokenizer in {checkpoint} must be byte-level or SentencePiece; it decodes by "
            f"{', '.join(sorted(kinds))}"
        )
    pairs = (
        vocabulary.items()
        if isinstance(vocabulary, dict)
        else ((entry[0], token) for token, entry in enumerate(vocabulary))
    )
    text_of = _byte_level_text if "ByteLevel" in kinds else _sentencepiece_text
    texts = [b""] * vocab_size
    for piece, token in pairs:
        if token < vocab_size:
            texts[token] = text_of(piece)
    for each in added:
        if each["id"] < vocab_size:  # The decoder leaves special tokens out of the text.
            texts[each["id"]] = b"" if each["special"] else each["content"].encode()
    return texts


def _decoders(decoder: dict[str, Any]) -> set[str]:
    """Return the types of a decoder and of the decoders that it contains."""
    inner = [kind for each in decoder.get("decoders", ()) for kind in _decoders(each)]
    return {decoder["type"], *inner}


def _byte_level_text(piece: str) -> bytes:
    if all(character in _BYTE_OF for character in piece):
        return bytes(_BYTE_OF[character] for character in piece)
    return piece.encode()  # as the decoder does with characters that represent no byte


def _sentencepiece_text(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(_WORD_START, " ").encode()
