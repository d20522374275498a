"""Checkpoints of EAGLE-3 and Medusa heads, in the layouts that other engines load too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specdec.errors import ConfigurationError
from specdec.torch_engine.config import ConfigFields, ModelConfig
from specdec.torch_engine.layers.weights import CheckpointTensors, LayerWeights, layer

EAGLE3, MEDUSA = "LlamaForCausalLMEagle3", "MedusaModel"
"""Names of the two kinds of head in the field `architectures` of config.json."""

NUM_FUSED = 3
"""Number of target layers whose inputs an EAGLE-3 head reads."""


@dataclass(frozen=True, slots=True)
class Eagle3Weights:
    """The weights of an EAGLE-3 head.

    Matrices are [out, in] in the engine's dtype, norms [hidden] float32.
    """

    fusion: Tensor
    """[hidden, 3 * hidden]: combines the target's states at the three taps."""
    layer: LayerWeights
    """The decoder layer. Its attention reads the embedding and the state side by side;
    `attention_norm` is the norm of the state."""
    embedding_norm: Tensor
    final_norm: Tensor
    head_rows: Tensor
    """[head vocab, hidden]: the output matrix."""
    token_of_head_row: Tensor
    """[head vocab] int64: the token of each row of the output matrix."""
    taps: tuple[int, ...]
    """The three layers of the target whose inputs are fused, ascending."""


@dataclass(frozen=True, slots=True)
class MedusaWeights:
    """The weights of the heads of one Medusa checkpoint."""

    heads: tuple[tuple[tuple[Tensor, Tensor], ...], ...]
    """The residual blocks of each head: a matrix [hidden, hidden] and a bias [hidden] float32."""
    head_rows: Tensor
    """[head vocab, hidden]: the output matrix that all heads share."""
    token_of_head_row: Tensor | None
    """[head vocab] int64: the token of each row of the output matrix; None if row i is token i."""


def load_head(
    directory: Path,
    target: ModelConfig,
    head_rows: Tensor,
    device: torch.device,
    dtype: torch.dtype,
) -> Eagle3Weights | MedusaWeights:
    """Load the head in `directory`; `head_rows` [vocab, hidden] is the target's output matrix.

    Raises ConfigurationError if the head is of an unknown kind, lacks tensors, or was made for
    another target. The same goes for a config.json that lacks a field.
    """
    path = directory / "config.json"
    config = ConfigFields(path)
    _check(path, config, target)
    take = CheckpointTensors.of(directory, device, dtype)
    architectures = config.get("architectures") or []
    if EAGLE3 in architectures:
        return _eagle3(take, config, target)
    if MEDUSA in architectures:
        return _medusa(take, config, target, head_rows)
    raise ConfigurationError(
        f"{path}: architectures is {architectures}; heads are {EAGLE3} or {MEDUSA}"
    )


def _check(path: Path, config: ConfigFields, target: ModelConfig) -> None:
    wanted = {"hidden_size": target.hidden_size, "vocab_size": target.vocab_size}
    if EAGLE3 in (config.get("architectures") or []):
        # The head's keys and values lie in the target's cache, and its layer is loaded with the
        # target's shapes.
        wanted |= {
            "num_attention_heads": target.num_heads,
            "num_key_value_heads": target.num_kv_heads,
            "intermediate_size": target.intermediate_size,
        }
    for name, value in wanted.items():
        if config.get(name) != value:
            raise ConfigurationError(
                f"{path}: {name} is {config.get(name)}; this target needs {value}"
            )


def _eagle3(take: CheckpointTensors, config: ConfigFields, target: ModelConfig) -> Eagle3Weights:
    hidden, num_rows = target.hidden_size, int(config["draft_vocab_size"])
    own = config.get("eagle_config") or {}
    default = (2, target.num_layers // 2, target.num_layers - 3)
    taps = tuple(own.get("eagle_aux_hidden_state_layer_ids") or default)
    if len(taps) != NUM_FUSED or sorted({*taps}) != [*taps] or taps[-1] >= target.num_layers:
        raise ConfigurationError(
            f"eagle_aux_hidden_state_layer_ids must be three ascending layers below "
            f"{target.num_layers}; given {list(taps)}"
        )
    offsets = take("d2t", num_rows).long()
    return Eagle3Weights(
        fusion=take.matrix("fc.weight", hidden, NUM_FUSED * hidden),
        layer=layer(take, "midlayer.", target, "hidden_norm", num_parts=2),
        embedding_norm=take("midlayer.input_layernorm.weight", hidden).float(),
        final_norm=take("norm.weight", hidden).float(),
        head_rows=take.matrix("lm_head.weight", num_rows, hidden).clone(),
        token_of_head_row=offsets + torch.arange(num_rows, device=offsets.device),
        taps=taps,
    )


def _medusa(
    take: CheckpointTensors, config: ConfigFields, target: ModelConfig, head_rows: Tensor
) -> MedusaWeights:
    hidden = target.hidden_size
    heads = tuple(
        tuple(
            (
                take.matrix(f"{number}.{block}.linear.weight", hidden, hidden),
                take(f"{number}.{block}.linear.bias", hidden).float(),
            )
            for block in range(int(config["medusa_num_layers"]))
        )
        for number in range(int(config["medusa_num_heads"]))
    )
    tokens = None
    if "d2t" in take:
        offsets = take("d2t", int(config["draft_vocab_size"])).long()
        tokens = offsets + torch.arange(len(offsets), device=offsets.device)
        head_rows = head_rows[tokens]
    # If the checkpoint has an output matrix, the heads were trained with it.
    if "lm_head.weight" in take:
        head_rows = take.matrix("lm_head.weight", len(head_rows), hidden).clone()
    return MedusaWeights(heads, head_rows, tokens)
