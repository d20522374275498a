"""Cross-vocabulary drafts: the tokens that target and draft share, and how to translate.

There are two translations. With `text` the target's tokenizer reads the draft's text (string-level
exact match). With `tokens` the draft proposes only tokens that both models have (token-level
intersection). Both come from Timor et al. 2025, "Accelerating LLM inference with lossless
speculative decoding algorithms for heterogeneous vocabularies".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specdec.builder.checkpoints.tokenizers import TOKENIZER, read_tokenizer
from specdec.builder.description.engine import TEXT, TOKENS

MIN_SHARE = 0.5
"""Share of the target's tokens that the draft must have to be translated by `tokens`. A word that
is one token of the target and two of the draft can only be translated by `text`."""

_SPACE = "▁"


@dataclass(frozen=True, slots=True, eq=False)
class SharedVocabulary:
    """The tokens that a draft's vocabulary shares with the target's."""

    target_ids: npt.NDArray[np.int32]
    """int32 [draft vocabulary]: the target's token with the same bytes; -1 if there is none."""
    num_target: int
    """Number of token ids in the target's vocabulary."""

    @property
    def num_shared(self) -> int:
        """Number of the draft's tokens that the target has too."""
        return int((self.target_ids >= 0).sum())

    @property
    def translation(self) -> str:
        """The recommended translation, TOKENS or TEXT."""
        return TOKENS if self.num_shared >= MIN_SHARE * self.num_target else TEXT


def shared_vocabulary(target: Path, draft: Path) -> SharedVocabulary:
    """Compare the vocabularies of two Hugging Face directories.

    If several tokens of the target have the same bytes, the lowest id counts. Added tokens, such as
    special ones, are never shared. Raises BuildError if one has no readable tokenizer.json.
    """
    target_tokens, draft_tokens = _token_bytes(target), _token_bytes(draft)
    id_of = {text: number for number, text in reversed(list(enumerate(target_tokens))) if text}
    found = [id_of.get(text, -1) if text else -1 for text in draft_tokens]
    return SharedVocabulary(np.asarray(found, dtype=np.int32), len(target_tokens))


def _token_bytes(directory: Path) -> list[bytes]:
    """Return the bytes that each token adds to a text, by id; empty for special tokens.

    Raises BuildError if the directory has no readable tokenizer.json.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # noqa: PLC0415 - slow

    tokenizer = read_tokenizer(directory)
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items()}
    decoder = json.dumps(json.loads((directory / TOKENIZER).read_text("utf-8")).get("decoder"))
    is_byte_level = "ByteLevel" in decoder
    byte_of = {letter: byte for byte, letter in bytes_to_unicode().items()}
    ids = tokenizer.get_vocab()
    tokens = [b""] * (max(ids.values()) + 1)
    for piece, number in ids.items():
        if number in special:
            continue
        if is_byte_level:
            tokens[number] = bytes(byte_of[letter] for letter in piece)
        elif piece.startswith("<0x") and piece.endswith(">"):
            tokens[number] = bytes.fromhex(piece[3:-1])
        else:
            tokens[number] = piece.replace(_SPACE, " ").encode()
    return tokens
