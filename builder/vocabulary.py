"""A target and a draft with different vocabularies: what they share, and how they can meet.

By `text`: the draft's words are cut into the target's tokens anew (string-level exact match). By
`tokens`: the draft says nothing but tokens that both know (token-level intersection). Both are of
Timor et al. 2025, "Accelerating LLM inference with lossless speculative decoding algorithms for
heterogeneous vocabularies".
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from builder.description.engine import TEXT, TOKENS
from builder.errors import BuildError
from specdec.drafting.translating import TARGET_IDS_FILE

MIN_SHARE = 0.5
"""Of the target's tokens that the draft must have, to guess token by token: a word that the target
says in one token and the draft in two can only be met by text."""

_SPACE = "▁"
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True, eq=False)
class SharedVocabulary:
    """Which of a draft's tokens are the target's too."""

    target_ids: npt.NDArray[np.int32]
    """[draft vocab]: the target's token with the same bytes, -1 where there is none."""
    num_target: int
    """The target's tokens."""

    @property
    def num_shared(self) -> int:
        return int((self.target_ids >= 0).sum())

    @property
    def translation(self) -> str:
        """How such a pair should meet."""
        return TOKENS if self.num_shared >= MIN_SHARE * self.num_target else TEXT


def shared_vocabulary(target: Path, draft: Path) -> SharedVocabulary:
    """Compare the tokenizers of two Hugging Face directories. Raises BuildError."""
    target_tokens, draft_tokens = _token_bytes(target), _token_bytes(draft)
    id_of = {text: number for number, text in reversed(list(enumerate(target_tokens))) if text}
    found = [id_of.get(text, -1) if text else -1 for text in draft_tokens]
    return SharedVocabulary(np.asarray(found, dtype=np.int32), len(target_tokens))


def restrict(checkpoint: Path, shared: SharedVocabulary, output: Path) -> None:
    """Copy a draft to `output` so that it can say shared tokens, and its end, alone.

    Its head keeps those rows (`d2t` says which, as in EAGLE-3), and target_ids.npy beside it says
    what they are to the target. Raises BuildError for a checkpoint with a reduced head.
    """
    import torch  # noqa: PLC0415 - slow to import, and this function alone needs it
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    if config.get("draft_vocab_size") is not None:
        raise BuildError(f"{checkpoint} has a reduced output vocabulary already")
    tensors = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        tensors.update(load_file(file))
    spoken = np.flatnonzero(shared.target_ids >= 0)
    if isinstance(config.get("eos_token_id"), int):
        spoken = np.union1d(spoken, [config["eos_token_id"]])
    rows = torch.from_numpy(spoken.astype(np.int64))
    head = tensors.get(_HEAD, tensors[_EMBEDDING])
    tensors[_HEAD] = head[rows].contiguous()
    tensors["d2t"] = rows - torch.arange(len(rows))
    config |= {"draft_vocab_size": len(rows), "tie_word_embeddings": False}
    ignored = shutil.ignore_patterns("*.safetensors", "*.index.json", "config.json")
    shutil.copytree(checkpoint, output, ignore=ignored)
    save_file(tensors, output / "model.safetensors", metadata={"format": "pt"})
    (output / "model.safetensors").chmod(0o644)
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    np.save(output / TARGET_IDS_FILE, shared.target_ids)


def _token_bytes(directory: Path) -> list[bytes]:
    """What each token adds to a text; empty for special tokens."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # noqa: PLC0415 - slow

    file = directory / "tokenizer.json"
    if not file.is_file():
        raise BuildError(f"{directory} has no tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items()}
    decoder = json.dumps(json.loads(file.read_text("utf-8")).get("decoder"))
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
