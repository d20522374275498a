"""What the engine needs to know of a checkpoint and of its deployment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec.errors import ConfigurationError


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
    """Rows of a reduced output head; None where the head covers the vocabulary."""

    @classmethod
    def from_directory(cls, directory: Path) -> ModelConfig:
        """Reads `directory/config.json`.

        Raises ConfigurationError for a missing file, another architecture, or a feature of the
        family that changes the arithmetic and is not implemented (biases, scaled RoPE).
        """
        path = directory / "config.json"
        try:
            raw: dict[str, Any] = json.loads(path.read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise ConfigurationError(f"cannot read the checkpoint's {path}: {error}") from error
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
        """RoPE's angle of each position and pair of dimensions: [max_position, head_dim / 2]."""
        half = torch.arange(0, self.head_dim, 2, dtype=torch.float32)
        frequencies = self.rope_theta ** -(half / self.head_dim)
        return torch.outer(torch.arange(self.max_position, dtype=torch.float32), frequencies)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much one engine takes on; all from config.pbtxt parameters."""

    max_seq_len: int = 8192
    """Prompt, drafts and output of one request together, in tokens."""
    max_draft_len: int = 16
    """Draft tokens verified in one pass; 0 for an engine that only drafts."""
    max_num_tokens: int = 512
    """Rows in one forward pass, over all requests."""
    max_num_sequences: int = 64
    """Requests that run at once; more wait."""
    num_cache_tokens: int = 65536
    """Size of the KV cache, in tokens over all sequences."""
