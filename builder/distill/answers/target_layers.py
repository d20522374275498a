"""The target's layers, for writing and reading answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig

from specdec.builder.distill.arithmetic import work_dtype
from specdec.builder.distill.rotary import rotary_tables, rotate
from specdec.torch_engine.layers.linear import can_be_packed


class PackedLinear:
    """The product y = x W^T for x [rows, in] and W [out, in] of one dtype.

    W is packed for oneDNN once, where that is possible.
    """

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.contiguous()
        self._packed = can_be_packed(weight)
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight)  # noqa: SLF001

    def __call__(self, x: Tensor) -> Tensor:
        """Return [rows, out] in the dtype of `x` [rows, in]."""
        if self._packed:
            product = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
            out: Tensor = product(x, self._weight, None, "none", [], "")
            return out
        return F.linear(x, self._weight)


@dataclass(frozen=True)
class Layer:
    """The weights of one Llama layer: fused projections and the two norm scales [hidden]."""

    qkv: PackedLinear
    out: PackedLinear
    gate_up: PackedLinear
    down: PackedLinear
    norm_in: Tensor
    norm_post: Tensor


class TargetLayers:
    """A Llama checkpoint on `device` in its `work_dtype`, and all arithmetic but the attention."""

    def __init__(self, model_dir: Path, max_len: int, device: torch.device) -> None:
        """Load the checkpoint; `max_len` positions get rows of the rotary tables."""
        config = AutoConfig.from_pretrained(model_dir)
        self.device, self.dtype = device, work_dtype(device)
        self.heads = int(config.num_attention_heads)
        self.kv_heads = int(config.num_key_value_heads)
        self.head_dim = int(config.hidden_size) // self.heads
        self.hidden_size = int(config.hidden_size)
        self.eps = float(config.rms_norm_eps)
        theta = float(config.rope_parameters["rope_theta"])
        self.cos, self.sin = rotary_tables(max_len, self.head_dim, theta, device)
        raw = load_file(model_dir / "model.safetensors")
        weights = {k: v.to(device, self.dtype) for k, v in raw.items()}
        self.embed = weights["model.embed_tokens.weight"]
        self.head = PackedLinear(weights.get("lm_head.weight", self.embed))
        self.last_norm = weights["model.norm.weight"]
        num_layers = int(config.num_hidden_layers)
        self.layers = [_layer(weights, f"model.layers.{i}.") for i in range(num_layers)]

    def norm(self, x: Tensor, scale: Tensor) -> Tensor:
        """Return the RMSNorm of x [rows, hidden] with `scale` [hidden]."""
        return F.rms_norm(x, (x.shape[-1],), scale, self.eps)

    def project(self, layer: Layer, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map x [rows, hidden] to q [rows, heads, dim], and k and v [rows, kv_heads, dim].

        `pos` int64 [rows] are the positions by which q and k are rotated.
        """
        qkv = layer.qkv(self.norm(x, layer.norm_in)).view(x.shape[0], -1, self.head_dim)
        num_rotated = self.heads + self.kv_heads
        cos, sin = self.cos[pos][:, None], self.sin[pos][:, None]
        turned = rotate(qkv[:, :num_rotated].float(), cos, sin).to(qkv.dtype)
        return turned[:, : self.heads], turned[:, self.heads :], qkv[:, num_rotated:]

    def mlp(self, layer: Layer, x: Tensor) -> Tensor:
        """Return x [rows, hidden] with the layer's MLP block added."""
        gate, up = layer.gate_up(self.norm(x, layer.norm_post)).chunk(2, dim=-1)
        return x + layer.down(F.silu(gate) * up)


def _layer(weights: dict[str, Tensor], prefix: str) -> Layer:
    attn, mlp = prefix + "self_attn.", prefix + "mlp."
    qkv = torch.cat([weights[f"{attn}{name}_proj.weight"] for name in "qkv"])
    gate_up = torch.cat([weights[f"{mlp}{name}_proj.weight"] for name in ("gate", "up")])
    return Layer(
        PackedLinear(qkv),
        PackedLinear(weights[attn + "o_proj.weight"]),
        PackedLinear(gate_up),
        PackedLinear(weights[mlp + "down_proj.weight"]),
        weights[prefix + "input_layernorm.weight"],
        weights[prefix + "post_attention_layernorm.weight"],
    )
