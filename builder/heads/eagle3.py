"""EAGLE-3 (Li et al. 2025): one layer that reads the target's states and its own draft tokens.

Parameter names are those of the reference checkpoints (`midlayer.…`, `fc`, `lm_head`), so that a
state dict is what other engines load. Row t of a sequence holds the target's states at token t and
reads token t + 1: it drafts token t + 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import torch
from torch import Tensor, nn

from specdec.builder.checkpoints.tensors import read_tensors
from specdec.builder.distill.network import MLP, DraftShape, RMSNorm, shape_of
from specdec.builder.distill.packing import Packing, pack, pack_like
from specdec.builder.distill.rotary import rotary_tables, rotate
from specdec.builder.distill.target import embedding_and_output_rows
from specdec.builder.heads.batch import HeadBatch

NUM_FUSED = 3
"""States of the target that are fused into one."""


@dataclass(frozen=True)
class AnchorLayout:
    """The anchors of a batch's sequences, laid out for attention."""

    anchors: Packing
    hidden: list[Tensor]
    """bool [members, 1, anchors, rows] for each piece: whether a row comes after an anchor."""


class Attention(nn.Module):
    """Attention from the anchors to the rows up to theirs, and to the anchor's own later steps."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.shape = shape
        width, dim = shape.hidden_size, shape.head_dim
        self.q_proj = nn.Linear(2 * width, shape.num_heads * dim, bias=False)
        self.k_proj = nn.Linear(2 * width, shape.num_kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(2 * width, shape.num_kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * dim, width, bias=False)

    def keys_values(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return rotated keys, and values, both [rows, heads, dim], of x [rows, 2 * hidden].

        `rotation` is (cosines, sines) of the rows' positions.
        """
        num, group = len(x), self.shape.num_heads // self.shape.num_kv_heads
        v = self.v_proj(x).view(num, -1, self.shape.head_dim)
        k = rotate(self.k_proj(x).view(num, -1, self.shape.head_dim), *rotation).to(v.dtype)
        return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        layout: AnchorLayout,
        row_kv: tuple[list[Tensor], list[Tensor]],
        step_kv: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Return the attention [anchors, hidden] of x [anchors, 2 * hidden].

        `row_kv` has keys [members, heads, dim, rows] and values [members, heads, rows, dim] for
        each piece; an anchor sees the rows up to its own. `step_kv` has keys and values [anchors,
        heads, dim] of each step after the first; an anchor sees its own.
        """
        num, dim = len(x), self.shape.head_dim
        q = rotate(self.q_proj(x).view(num, -1, dim), *rotation).to(row_kv[0][0].dtype)
        # [anchors, heads] for each step.
        step_scores = [(q * k).sum(-1).float() * dim**-0.5 for k, _ in step_kv]
        spread = layout.anchors.spread
        columns = zip(*map(spread, step_scores), strict=True) if step_kv else repeat(())
        step_values = zip(*(spread(v) for _, v in step_kv), strict=True) if step_kv else repeat(())
        pieces = zip(
            row_kv[0], row_kv[1], spread(q), layout.hidden, columns, step_values, strict=False
        )
        mixed = []
        for keys, values, queries, hidden, own_scores, own_values in pieces:
            scores = (queries.transpose(1, 2) @ keys).float() * dim**-0.5
            scores = scores.masked_fill(hidden, float("-inf"))
            added = (each.transpose(1, 2)[..., None] for each in own_scores)
            weights = torch.cat([scores, *added], dim=-1).softmax(dim=-1).to(values.dtype)
            length = values.shape[2]
            out = weights[..., :length] @ values
            for step, v in enumerate(own_values):
                out = out + weights[..., length + step, None] * v.transpose(1, 2)
            mixed.append(out.transpose(1, 2))
        projected: Tensor = self.o_proj(layout.anchors.gather(mixed).flatten(1))
        return projected


class Midlayer(nn.Module):
    """The decoder layer, which reads [embedding of the next token; state]."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def inputs(self, embedded: Tensor, state: Tensor) -> Tensor:
        """Return the attention's input, [rows, 2 * hidden]."""
        return torch.cat((self.input_layernorm(embedded), self.hidden_norm(state)), dim=-1)


class Eagle3(nn.Module):
    """An EAGLE-3 head in training.

    `embed` [vocab, hidden] is the target's and frozen. The output rows are frozen, too, unless they
    are trained.
    """

    embed: Tensor
    draft_ids: Tensor

    def __init__(
        self,
        shape: DraftShape,
        embed: Tensor,
        rows: Tensor,
        draft_ids: Tensor,
        train_head: bool,
    ) -> None:
        """Make a head whose output rows start as `rows` [draft vocab, hidden]."""
        super().__init__()
        self.shape = shape
        width = shape.hidden_size
        self.fc = nn.Linear(NUM_FUSED * width, width, bias=False)
        self.midlayer = Midlayer(shape)
        self.norm = RMSNorm(width, shape.rms_norm_eps)
        self.lm_head = nn.Linear(width, shape.draft_vocab_size, bias=False)
        self.register_buffer("embed", embed, persistent=False)
        self.register_buffer("draft_ids", draft_ids, persistent=False)
        with torch.no_grad():
            self.lm_head.weight.copy_(rows)
        self.lm_head.weight.requires_grad_(train_head)

    def steps(self, batch: HeadBatch, num_steps: int) -> Iterator[Tensor]:
        """Yield logits [anchors, draft vocab] of each step, taking all earlier tokens as accepted.

        This is the training-time test: where the target's state is not known yet, a step reads the
        head's own.
        """
        shape, device = self.shape, batch.tokens.device
        longest = max(batch.lens) + num_steps
        cos, sin = rotary_tables(longest, shape.head_dim, shape.rope_theta, device)
        positions = torch.cat([torch.arange(n) for n in batch.lens]).to(device)
        rows, layer = batch.anchors, self.midlayer
        fused = self.fc(batch.states[:, :NUM_FUSED].flatten(1).to(self.fc.weight.dtype))
        x = layer.inputs(self.embed[batch.tokens[: len(fused)]], fused)
        packing = pack(batch.lens, device)
        anchors = pack_like(packing, batch.anchors_of, device)
        hidden = [
            torch.arange(longest, device=device) > at[:, None, :, None]
            for at, longest in zip(anchors.spread(positions[rows]), packing.longest, strict=True)
        ]
        layout = AnchorLayout(anchors, hidden)
        rotation = (cos[positions][:, None], sin[positions][:, None])
        k, v = map(packing.spread, layer.self_attn.keys_values(x, rotation))
        row_kv = ([each.permute(0, 2, 3, 1) for each in k], [each.transpose(1, 2) for each in v])
        step_kv: list[tuple[Tensor, Tensor]] = []
        x, state = x[rows], fused[rows]
        for step in range(num_steps):
            at = positions[rows] + step
            rotation = (cos[at][:, None], sin[at][:, None])
            if step:
                x = layer.inputs(self.embed[batch.tokens[rows + step]], state)
                step_kv.append(layer.self_attn.keys_values(x, rotation))
            state = state + layer.self_attn(x, rotation, layout, row_kv, step_kv)
            state = state + layer.mlp(layer.post_attention_layernorm(state))
            logits: Tensor = self.lm_head(self.norm(state))
            yield logits


def start(target_dir: Path, draft_ids: Tensor, train_head: bool) -> Eagle3:
    """Return a head that begins as the target's last layer on the last of the fused states."""
    shape = shape_of(target_dir, 1, len(draft_ids))
    raw = {k: v.float() for k, v in read_tensors(target_dir / "model.safetensors").items()}
    embed, rows = embedding_and_output_rows(target_dir)
    head = Eagle3(shape, embed, rows[draft_ids], draft_ids, train_head)
    last = max(int(k.split(".")[2]) for k in raw if k.startswith("model.layers."))
    prefix, width = f"model.layers.{last}.", shape.hidden_size
    with torch.no_grad():
        head.fc.weight.mul_(0.1)
        head.fc.weight[:, (NUM_FUSED - 1) * width :] += torch.eye(width)
        layer = head.midlayer
        for name in ("q", "k", "v"):
            weight = getattr(layer.self_attn, f"{name}_proj").weight
            weight[:, width:] = raw[f"{prefix}self_attn.{name}_proj.weight"]
        layer.self_attn.o_proj.weight.copy_(raw[f"{prefix}self_attn.o_proj.weight"])
        layer.hidden_norm.weight.copy_(raw[f"{prefix}input_layernorm.weight"])
        layer.post_attention_layernorm.weight.copy_(raw[f"{prefix}post_attention_layernorm.weight"])
        for name in ("gate", "up", "down"):
            weight = getattr(layer.mlp, f"{name}_proj").weight
            weight.copy_(raw[f"{prefix}mlp.{name}_proj.weight"])
        head.norm.weight.copy_(raw["model.norm.weight"])
    return head
