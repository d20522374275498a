"""The target model as a batch writer: many sequences at once, weights packed once.

Compute-bound on a CPU from about 32 sequences on, so what counts is a full batch: finished
slots are refilled at once, prompts are prefilled ragged (no padding), and a prefix shared by
all prompts (the chat template's system turn) is computed once and copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig

GROUP = 8  # slots that attend together
BLOCK = 64  # columns per block of the two-stage top-k


class PackedLinear:
    """y = x W^T for bf16 x [rows, in] and W [out, in]; W packed for oneDNN on a CPU."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.contiguous()
        self._packed = weight.device.type == "cpu" and weight.dtype == torch.bfloat16
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight)  # noqa: SLF001

    def __call__(self, x: Tensor) -> Tensor:
        """Return [rows, out] in bf16."""
        if self._packed:
            product = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
            out: Tensor = product(x, self._weight, None, "none", [], "")
            return out
        return F.linear(x, self._weight)


@dataclass(frozen=True)
class Layer:
    """One Llama layer: fused projections and the two norm scales [hidden]."""

    qkv: PackedLinear
    out: PackedLinear
    gate_up: PackedLinear
    down: PackedLinear
    norm_in: Tensor
    norm_post: Tensor


def rotary_tables(
    max_len: int, head_dim: int, theta: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 [max_len, head_dim], halves repeated (Hugging Face's layout)."""
    inv = 1.0 / theta ** (torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    angle = torch.arange(max_len, device=device).float()[:, None] * inv[None]
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [..., head_dim]; cos/sin broadcast against x."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


def top_logprobs(logits: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Exact top `num` of logits [rows, vocab]: log-probabilities float32, ids int64.

    Two stages: the best `num` blocks by their maximum hold the best `num` values.
    """
    rows, vocab = logits.shape
    wide = logits.float()
    normaliser = torch.logsumexp(wide, dim=-1, keepdim=True)
    if vocab % BLOCK or vocab // BLOCK < num:
        values, ids = wide.topk(num, dim=-1)
        return values - normaliser, ids
    blocks = wide.view(rows, vocab // BLOCK, BLOCK)
    best = blocks.amax(dim=-1).topk(num, dim=-1).indices
    candidates = blocks.gather(1, best[..., None].expand(-1, -1, BLOCK))
    values, index = candidates.reshape(rows, num * BLOCK).topk(num, dim=-1)
    ids = best.gather(1, index // BLOCK) * BLOCK + index % BLOCK
    return values - normaliser, ids


@dataclass(frozen=True)
class Passed:
    """What came of a pass: logits [asked, vocab], and each asked sequence's new features."""

    logits: Tensor
    features: list[Tensor]
    """[new rows, taps, hidden] bf16 on the CPU; empty for a teacher without taps."""


class Teacher:
    """A Llama checkpoint with a preallocated KV cache of `num_slots` x `max_len` positions."""

    def __init__(
        self,
        model_dir: Path,
        num_slots: int,
        max_len: int,
        device: torch.device,
        taps: tuple[int, ...] = (),
    ) -> None:
        """`taps`: the layers whose input is kept; the number of layers is the final norm's output.

        Layer inputs as in EAGLE-3 (aux hidden states of vLLM's llama.py): the residual stream.
        """
        config = AutoConfig.from_pretrained(model_dir)
        self.device, self.max_len, self.num_slots = device, max_len, num_slots
        self.taps = taps
        self.heads = int(config.num_attention_heads)
        self.kv_heads = int(config.num_key_value_heads)
        self.head_dim = int(config.hidden_size) // self.heads
        self.eps = float(config.rms_norm_eps)
        num_layers = int(config.num_hidden_layers)
        theta = float(config.rope_parameters["rope_theta"])
        self.cos, self.sin = rotary_tables(max_len, self.head_dim, theta, device)
        raw = load_file(model_dir / "model.safetensors")
        weights = {k: v.to(device, torch.bfloat16) for k, v in raw.items()}
        self.embed = weights["model.embed_tokens.weight"]
        self.head = PackedLinear(weights.get("lm_head.weight", self.embed))
        self.norm = weights["model.norm.weight"]
        self.layers = [_layer(weights, f"model.layers.{i}.") for i in range(num_layers)]
        shape = (num_layers, num_slots, self.kv_heads, max_len, self.head_dim)
        self.keys = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        self.values = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        self.lens = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self._prefix: list[int] = []
        self._prefix_features: list[Tensor] = []

    def _norm(self, x: Tensor, scale: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), scale, self.eps)

    def _project(self, layer: Layer, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map x [rows, hidden] to q [rows, heads, dim], k and v [rows, kv_heads, dim], rotated."""
        rows, dim = x.shape[0], self.head_dim
        qkv = layer.qkv(self._norm(x, layer.norm_in)).view(rows, -1, dim)
        num_rotated = self.heads + self.kv_heads
        cos, sin = self.cos[pos][:, None], self.sin[pos][:, None]
        turned = rotate(qkv[:, :num_rotated].float(), cos, sin).to(qkv.dtype)
        return turned[:, : self.heads], turned[:, self.heads :], qkv[:, num_rotated:]

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        gate, up = layer.gate_up(self._norm(x, layer.norm_post)).chunk(2, dim=-1)
        return x + layer.down(F.silu(gate) * up)

    @torch.inference_mode()
    def set_prefix(self, ids: list[int]) -> None:
        """Compute the keys and values of a prefix once; prompts starting with it copy them."""
        self._prefix = []
        self._prefix_features = self.prefill([0], [ids]).features
        num = len(ids)
        self._prefix_keys = self.keys[:, 0, :, :num].clone()
        self._prefix_values = self.values[:, 0, :, :num].clone()
        self._prefix = list(ids)

    @torch.inference_mode()
    def prefill(self, slots: list[int], prompts: list[list[int]]) -> Passed:
        """Fill the slots with the prompts; logits of their last tokens, features of all."""
        start = len(self._prefix)
        skip = [start if p[:start] == self._prefix and len(p) > start else 0 for p in prompts]
        tokens = [t for p, s in zip(prompts, skip, strict=True) for t in p[s:]]
        pos = torch.cat([torch.arange(s, len(p)) for p, s in zip(prompts, skip, strict=True)])
        pos = pos.to(self.device)
        num_pad = _round_up(len(tokens), 128) - len(tokens)
        tokens, pos = tokens + [0] * num_pad, F.pad(pos, (0, num_pad))
        x = self.embed[torch.tensor(tokens, device=self.device)]
        lens = [len(p) - s for p, s in zip(prompts, skip, strict=True)]
        tapped: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            self._tap(tapped, i, x)
            q, k, v = self._project(layer, x, pos)
            mixed, at = [], 0
            for slot, num_old, num_new in zip(slots, skip, lens, strict=True):
                cut = slice(at, at + num_new)
                mixed.append(self._attend_one(i, slot, num_old, q[cut], k[cut], v[cut]))
                at += num_new
            x = x + layer.out(F.pad(torch.cat(mixed), (0, 0, 0, num_pad)))
            x = self._mlp(layer, x)
        last = torch.tensor(lens, device=self.device).cumsum(0) - 1
        for slot, prompt in zip(slots, prompts, strict=True):
            self.lens[slot] = len(prompt)
        x = self._norm(x, self.norm)
        self._tap(tapped, len(self.layers), x)
        features: list[Tensor] = []
        if self.taps:
            own = torch.stack(tapped, dim=1).cpu().split([*lens, num_pad])[: len(lens)]
            features = [
                torch.cat((*self._prefix_features, new)) if num_old else new.clone()
                for new, num_old in zip(own, skip, strict=True)
            ]
        return Passed(self.head(x[last]), features)

    def _tap(self, tapped: list[Tensor], layer: int, x: Tensor) -> None:
        if layer in self.taps:
            tapped.append(x)

    def _attend_one(
        self, i: int, slot: int, num_old: int, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        """Causal attention of one prompt's new rows; stores k, v; returns [rows, heads*dim]."""
        num = q.shape[0]
        if num_old:
            self.keys[i, slot, :, :num_old] = self._prefix_keys[i]
            self.values[i, slot, :, :num_old] = self._prefix_values[i]
        self.keys[i, slot, :, num_old : num_old + num] = k.transpose(0, 1)
        self.values[i, slot, :, num_old : num_old + num] = v.transpose(0, 1)
        total, group = num_old + num, self.heads // self.kv_heads
        keys = self.keys[i, slot, :, :total].repeat_interleave(group, dim=0)[None]
        values = self.values[i, slot, :, :total].repeat_interleave(group, dim=0)[None]
        mask = None
        if num_old:
            mask = torch.ones(num, total, dtype=torch.bool, device=q.device).tril(num_old)
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None], keys, values, attn_mask=mask, is_causal=mask is None
        )
        return out[0].transpose(0, 1).reshape(num, -1)

    @torch.inference_mode()
    def park(self, slots: list[int]) -> None:
        """Mark slots idle: one position long, so that they add nothing to the attention."""
        if slots:
            self.lens[torch.tensor(slots, device=self.device)] = 0

    @torch.inference_mode()
    def decode(self, tokens: Tensor) -> Passed:
        """One step for all slots: tokens int64 [num_slots].

        Idle slots compute rubbish that nobody reads; their length must be kept below max_len.
        """
        slots = torch.arange(self.num_slots, device=self.device)
        pos = self.lens
        groups = self._groups(pos)
        x = self.embed[tokens]
        tapped: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            self._tap(tapped, i, x)
            q, k, v = self._project(layer, x, pos)
            self.keys[i, slots, :, pos] = k
            self.values[i, slots, :, pos] = v
            grouped = q.view(self.num_slots, self.kv_heads, -1, self.head_dim)
            out = torch.cat(
                [
                    F.scaled_dot_product_attention(
                        grouped[own],
                        self.keys[i, own, :, : mask.shape[-1]],
                        self.values[i, own, :, : mask.shape[-1]],
                        attn_mask=mask,
                    )
                    for own, mask in groups
                ]
            )
            x = x + layer.out(out.view(self.num_slots, -1))
            x = self._mlp(layer, x)
        self.lens = pos + 1
        x = self._norm(x, self.norm)
        self._tap(tapped, len(self.layers), x)
        features = list(torch.stack(tapped, dim=1)[:, None].cpu()) if self.taps else []
        return Passed(self.head(x), features)

    def _groups(self, pos: Tensor) -> list[tuple[slice, Tensor]]:
        """Neighbouring slots, which attend together, and the mask of what is hidden from them.

        The query heads that share a key head are the rows of one product.
        """
        groups = []
        for start in range(0, self.num_slots, GROUP):
            own = slice(start, start + GROUP)
            total = min(_round_up(int(pos[own].max()) + 1, 32), self.max_len)
            hidden = torch.arange(total, device=self.device)[None] > pos[own][:, None]
            mask = torch.zeros(hidden.shape, dtype=torch.bfloat16, device=self.device)
            groups.append((own, mask.masked_fill_(hidden, float("-inf"))[:, None, None]))
        return groups


def _round_up(num: int, step: int) -> int:
    return -(-num // step) * step


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
