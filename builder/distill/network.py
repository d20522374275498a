"""The network of a draft: a few Llama layers on the target's frozen embedding.

It has fewer output rows than the target. The arithmetic is that of the target's family (RMSNorm,
rotary embedding in halves, SwiGLU), so that any Llama engine runs the draft. The tokens of all
sequences form one list of rows for the matrix products. `packing` explains how attention runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig

from specdec.builder.checkpoints.tensors import read_tensors
from specdec.builder.distill.packing import Packing, attend, pack
from specdec.builder.distill.rotary import rotary_tables, rotate
from specdec.builder.errors import BuildError


@dataclass(frozen=True)
class DraftShape:
    """The Llama sizes of the draft.

    All but `num_layers` and `draft_vocab_size` are the target's.
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int
    draft_vocab_size: int
    rope_theta: float
    rms_norm_eps: float

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads


def shape_of(target_dir: Path, num_layers: int, draft_vocab_size: int) -> DraftShape:
    """Return the shape of a draft for the target in `target_dir`."""
    config = AutoConfig.from_pretrained(target_dir)
    return DraftShape(
        num_layers=num_layers,
        hidden_size=int(config.hidden_size),
        intermediate_size=int(config.intermediate_size),
        num_heads=int(config.num_attention_heads),
        num_kv_heads=int(config.num_key_value_heads),
        vocab_size=int(config.vocab_size),
        draft_vocab_size=draft_vocab_size,
        rope_theta=float(config.rope_parameters["rope_theta"]),
        rms_norm_eps=float(config.rms_norm_eps),
    )


class RMSNorm(nn.Module):
    """RMS normalisation: x / sqrt(mean(x^2) + eps) * weight over the last axis."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised x in its dtype, computed in float32."""
        return F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention within each sequence; x [tokens, hidden] has the rows of all."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.shape = shape
        width, dim = shape.hidden_size, shape.head_dim
        self.q_proj = nn.Linear(width, shape.num_heads * dim, bias=False)
        self.k_proj = nn.Linear(width, shape.num_kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(width, shape.num_kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * dim, width, bias=False)

    def forward(self, x: Tensor, packing: Packing, cos: Tensor, sin: Tensor) -> Tensor:
        """Return [tokens, hidden], causal within each sequence.

        `cos` and `sin` are float32 [tokens, 1, head_dim], by the tokens' positions.
        """
        dim, num = self.shape.head_dim, len(x)
        v = self.v_proj(x).view(num, -1, dim)
        q = rotate(self.q_proj(x).view(num, -1, dim), cos, sin).to(v.dtype)
        k = rotate(self.k_proj(x).view(num, -1, dim), cos, sin).to(v.dtype)
        out: Tensor = self.o_proj(attend(q, k, v, packing))
        return out


class MLP(nn.Module):
    """The block down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return [tokens, hidden] for x [tokens, hidden]."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One pre-norm Llama layer."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x: Tensor, packing: Packing, cos: Tensor, sin: Tensor) -> Tensor:
        """Return [tokens, hidden] for x [tokens, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), packing, cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class DraftNetwork(nn.Module):
    """The draft model; parameter names are Hugging Face's without the `model.` prefix.

    `embed` [vocab, hidden] is the target's and frozen. `draft_ids` int64 [draft_vocab], sorted, are
    the target ids of the output rows. The head starts as the embedding rows of these tokens.
    """

    embed: Tensor
    draft_ids: Tensor

    def __init__(
        self, shape: DraftShape, embed: Tensor, draft_ids: Tensor, train_head: bool
    ) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.register_buffer("embed", embed, persistent=False)
        self.register_buffer("draft_ids", draft_ids, persistent=False)
        self.lm_head = nn.Linear(shape.hidden_size, shape.draft_vocab_size, bias=False)
        with torch.no_grad():
            self.lm_head.weight.copy_(embed[draft_ids])
        self.lm_head.weight.requires_grad_(train_head)

    def hidden(self, tokens: Tensor, lens: list[int]) -> Tensor:
        """Return normalised hidden states [sum(lens), hidden] of tokens int64 [sum(lens)]."""
        shape = self.shape
        cos, sin = rotary_tables(max(lens), shape.head_dim, shape.rope_theta, tokens.device)
        pos = torch.cat([torch.arange(n) for n in lens]).to(tokens.device)
        cos, sin = cos[pos][:, None], sin[pos][:, None]
        packing = pack(lens, tokens.device)
        x = self.embed[tokens]
        for layer in self.layers:
            x = layer(x, packing, cos, sin)
        out: Tensor = self.norm(x)
        return out

    def forward(self, tokens: Tensor, lens: list[int], rows: Tensor) -> Tensor:
        """Return logits [len(rows), draft_vocab] at the chosen rows of all sequences' tokens."""
        logits: Tensor = self.lm_head(self.hidden(tokens, lens)[rows])
        return logits


def without_weights(
    target_dir: Path, num_layers: int, draft_ids: Tensor, train_head: bool
) -> DraftNetwork:
    """Return a draft of the target's shape whose own layers are still random, in float32."""
    embed = read_tensors(target_dir / "model.safetensors")["model.embed_tokens.weight"].float()
    return DraftNetwork(
        shape_of(target_dir, num_layers, len(draft_ids)), embed, draft_ids, train_head
    )


def start_from_target(
    target_dir: Path, layers: list[int], draft_ids: Tensor, train_head: bool
) -> DraftNetwork:
    """Return a draft whose layers are copies of the given layers of the target, in float32.

    Raises BuildError if they do not fit.
    """
    raw = read_tensors(target_dir / "model.safetensors")
    draft = without_weights(target_dir, len(layers), draft_ids, train_head)
    state = {"norm.weight": raw["model.norm.weight"].float()}
    for new, old in enumerate(layers):
        start = f"model.layers.{old}."
        for name, tensor in raw.items():
            if name.startswith(start):
                state[f"layers.{new}.{name[len(start) :]}"] = tensor.float()
    missing = draft.load_state_dict(state, strict=False)
    if missing.unexpected_keys or set(missing.missing_keys) - {"lm_head.weight"}:
        raise BuildError(f"target layers {layers} do not fit the draft: {missing}")
    return draft
