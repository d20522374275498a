"""Configuration of the engine: the shape of a checkpoint, and the limits of a deployment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec.errors import ConfigurationError


class ConfigFields(dict[str, Any]):
    """The fields of a config.json; a missing one raises ConfigurationError when it is read."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises ConfigurationError if it is missing or is not JSON."""
        try:
            super().__init__(json.loads(path.read_text()))
        except (OSError, TypeError, ValueError) as error:
            raise ConfigurationError(f"cannot read {path}: {error}") from error
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise ConfigurationError(f"{self._path} has no field {name}")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a Llama-family decoder, read from a Hugging Face `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position: int
    tie_embeddings: bool
    draft_vocab_size: int | None
    """Rows of an output head for a reduced vocabulary; None if it covers the whole one."""

    @classmethod
    def from_directory(cls, directory: Path) -> ModelConfig:
        """Read `directory/config.json`.

        Raises ConfigurationError if the file cannot be read or lacks a field, or for another
        architecture. The same goes for biases and scaled RoPE, which would change the arithmetic
        and are not implemented.
        """
        path = directory / "config.json"
        raw = ConfigFields(path)
        if raw.get("model_type") != "llama":
            raise ConfigurationError(
                f"{path}: model_type is {raw.get('model_type')!r}; the torch engine serves 'llama'"
            )
        for bias in ("attention_bias", "mlp_bias"):
            if raw.get(bias):
                raise ConfigurationError(f"{path}: {bias} is true; the torch engine has no biases")
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        if rope.get("rope_type", "default") != "default":
            raise ConfigurationError(f"{path}: rope_type {rope['rope_type']!r} is not supported")
        num_heads = int(raw["num_attention_heads"])
        hidden_size = int(raw["hidden_size"])
        return cls(
            vocab_size=int(raw["vocab_size"]),
            hidden_size=hidden_size,
            intermediate_size=int(raw["intermediate_size"]),
            num_layers=int(raw["num_hidden_layers"]),
            num_heads=num_heads,
            num_kv_heads=int(raw.get("num_key_value_heads") or num_heads),
            head_dim=int(raw.get("head_dim") or hidden_size // num_heads),
            rms_norm_eps=float(raw["rms_norm_eps"]),
            rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
            max_position=int(raw["max_position_embeddings"]),
            tie_embeddings=bool(raw.get("tie_word_embeddings", False)),
            draft_vocab_size=raw.get("draft_vocab_size"),
        )

    def rotation_angles(self) -> Tensor:
        """Return RoPE's angle for each position and pair of dimensions, in radians.

        The result is [max_position, head_dim / 2] float32.
        """
        half = torch.arange(0, self.head_dim, 2, dtype=torch.float32)
        frequencies = self.rope_theta ** -(half / self.head_dim)
        return torch.outer(torch.arange(self.max_position, dtype=torch.float32), frequencies)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits of one engine, all set by parameters in its config.pbtxt."""

    max_seq_len: int = 8192
    """Largest number of tokens of one request: prompt, draft and output together."""
    max_draft_len: int = 16
    """Largest number of draft tokens that one call verifies or the drafting head proposes. 0 for an
    engine that verifies no drafts."""
    max_num_tokens: int = 512
    """Largest number of rows in one forward pass, over all requests."""
    max_num_sequences: int = 64
    """Largest number of sequences that run at once; further tasks wait."""
    num_cache_tokens: int = 65536
    """Size of the KV cache in tokens, over all sequences; rounded up to whole blocks."""
