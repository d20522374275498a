"""The weights of a Hugging Face checkpoint, loaded as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from specdec.errors import ConfigurationError
from specdec.torch_engine.config import ModelConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The weights of one decoder layer.

    Matrices are [out, in] in the engine's dtype, norms [hidden] float32.
    """

    attention_norm: Tensor
    qkv: Tensor
    """Matrices of queries, keys and values; rows that RoPE rotates together lie side by side."""
    output: Tensor
    mlp_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """The weights of a whole model; matrices are in the engine's dtype, bf16 or float32."""

    embedding: Tensor
    """[vocab, hidden]: the embedding of each token."""
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    """[hidden] float32: the norm before the output head."""
    head_rows: Tensor
    """[head vocab, hidden]: the output matrix."""
    token_of_head_row: Tensor | None
    """[head vocab] int64: the token of each row of a reduced head; None if row i is token i."""


def load(
    directory: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> ModelWeights:
    """Load the weights from every *.safetensors file in `directory`; matrices become `dtype`.

    Raises ConfigurationError if files or tensors are missing, or if a tensor's shape does not fit
    `config`.
    """
    take = CheckpointTensors.of(directory, device, dtype)
    hidden = config.hidden_size
    # Embedding and output matrix may outlive all other tensors. As views of the mapped file they
    # would keep the whole file in memory, so they are copied.
    embedding = take.matrix("model.embed_tokens.weight", config.vocab_size, hidden).clone()
    num_head_rows = config.draft_vocab_size or config.vocab_size
    if config.tie_embeddings and config.draft_vocab_size is None:
        head_rows = embedding
    else:
        head_rows = take.matrix("lm_head.weight", num_head_rows, hidden).clone()
    token_of_head_row = None
    # In EAGLE-3's convention, d2t[i] is the token of row i minus i.
    if config.draft_vocab_size is not None:
        offsets = take("d2t", num_head_rows)
        token_of_head_row = torch.arange(num_head_rows, device=device) + offsets.long()
    return ModelWeights(
        embedding=embedding,
        layers=tuple(
            layer(take, f"model.layers.{index}.", config) for index in range(config.num_layers)
        ),
        final_norm=take("model.norm.weight", hidden).float(),
        head_rows=head_rows,
        token_of_head_row=token_of_head_row,
    )


def layer(
    take: CheckpointTensors,
    prefix: str,
    config: ModelConfig,
    norm: str = "input_layernorm",
    num_parts: int = 1,
) -> LayerWeights:
    """Return the weights of the layer whose tensor names begin with `prefix`.

    `norm` is the name of the norm before the attention. The inputs of the attention have
    `num_parts` times the hidden size. Raises ConfigurationError if a tensor is missing or has
    another shape.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    width = num_parts * hidden
    num_query_rows = config.num_heads * config.head_dim
    num_kv_rows = config.num_kv_heads * config.head_dim

    def rotary(name: str, num_rows: int) -> Tensor:
        # RoPE rotates pairs (i, i + head_dim / 2). Side by side, each pair is one complex number.
        # Queries and keys are reordered alike, so their dot products stay the same.
        weight = take.matrix(f"{prefix}self_attn.{name}.weight", num_rows, width)
        halves = weight.view(-1, 2, config.head_dim // 2, width)
        return halves.transpose(1, 2).reshape(num_rows, width)

    value = take.matrix(f"{prefix}self_attn.v_proj.weight", num_kv_rows, width)
    query, key = rotary("q_proj", num_query_rows), rotary("k_proj", num_kv_rows)
    return LayerWeights(
        attention_norm=take(f"{prefix}{norm}.weight", hidden).float(),
        qkv=torch.cat((query, key, value)),
        output=take.matrix(f"{prefix}self_attn.o_proj.weight", hidden, num_query_rows),
        mlp_norm=take(f"{prefix}post_attention_layernorm.weight", hidden).float(),
        gate=take.matrix(f"{prefix}mlp.gate_proj.weight", inner, hidden),
        up=take.matrix(f"{prefix}mlp.up_proj.weight", inner, hidden),
        down=take.matrix(f"{prefix}mlp.down_proj.weight", hidden, inner),
    )


class CheckpointTensors:
    """The tensors of a checkpoint, which a call returns by name and expected shape.

    A call raises ConfigurationError if the tensor is missing or has another shape.
    """

    @classmethod
    def of(cls, directory: Path, device: torch.device, dtype: torch.dtype) -> CheckpointTensors:
        """Load the tensors of every *.safetensors file in `directory`.

        Raises ConfigurationError if there is no such file.
        """
        files = sorted(directory.glob("*.safetensors"))
        if not files:
            raise ConfigurationError(f"no *.safetensors in the checkpoint directory {directory}")
        tensors: dict[str, Tensor] = {}
        for file in files:
            tensors.update(load_file(file, device=str(device)))
        return cls(tensors, directory, dtype)

    def __init__(self, tensors: Mapping[str, Tensor], directory: Path, dtype: torch.dtype) -> None:
        self._tensors = tensors
        self._directory = directory
        self._dtype = dtype

    def __call__(self, name: str, *shape: int) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ConfigurationError(f"the checkpoint {self._directory} has no tensor {name}")
        if tuple(tensor.shape) != shape:
            raise ConfigurationError(
                f"tensor {name} of {self._directory} has shape {list(tensor.shape)}, "
                f"config.json makes it {list(shape)}"
            )
        return tensor

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def matrix(self, name: str, *shape: int) -> Tensor:
        """Return the tensor in the engine's dtype; raises ConfigurationError as a call does."""
        return self(name, *shape).to(self._dtype)
