"""The target over many sequences at once, to write answers and to read them again.

Slots whose answer is finished are filled again while others run. The prompts of a prefill form one
list of rows, so that none is padded to the longest. On a CPU a prefix shared by all prompts (the
chat template's system turn) is computed once and copied. A GPU reads it again in less time than it
copies it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.builder.distill.answers.target_layers import TargetLayers
from specdec.builder.distill.packing import attend, pack

CPU_GROUP = 8
"""Slots that attend together on a CPU."""
SPAN = 32
"""Step to a multiple of which the positions in attention are rounded up."""
BLOCK = 64
"""Columns in a block of the two-stage top-k."""


def top_logprobs(logits: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Return the exact top `num` of logits [rows, vocab]: log-probabilities float32, ids int64.

    Both are [rows, num]. The search has two stages: the best `num` blocks by their maximum hold the
    best `num` values.
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


class TargetRunner:
    """A Llama checkpoint with a KV cache of `num_slots` x `max_len` positions."""

    def __init__(
        self,
        model_dir: Path,
        num_slots: int,
        max_len: int,
        device: torch.device,
        taps: tuple[int, ...] = (),
    ) -> None:
        """Load the checkpoint and allocate the cache.

        `taps` are the layers whose input is kept; the number of layers means the final norm's
        output. A layer's input is the residual stream, as in EAGLE-3 (aux hidden states of vLLM's
        llama.py).
        """
        self.model = model = TargetLayers(model_dir, max_len, device)
        self.device, self.max_len, self.num_slots, self.taps = device, max_len, num_slots, taps
        self._room = _round_up(max_len, SPAN)
        shape = (len(model.layers), num_slots, model.kv_heads, self._room, model.head_dim)
        self.keys = torch.zeros(shape, dtype=model.dtype, device=device)
        self.values = torch.zeros(shape, dtype=model.dtype, device=device)
        self.lens = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.features = torch.zeros(
            (num_slots, max_len, len(taps), model.hidden_size), dtype=torch.bfloat16, device=device
        )
        """[num_slots, max_len, taps, hidden] bf16: the states of the tokens that each slot has
        read."""
        self._prefix: list[int] = []

    @torch.inference_mode()
    def set_prefix(self, ids: list[int]) -> None:
        """Compute the keys and values of a prefix once; prompts starting with it copy them.

        On a GPU this does nothing.
        """
        if self.device.type != "cpu":
            return
        self._prefix = []
        self.prefill([0], [ids])
        num = len(ids)
        self._prefix_keys = self.keys[:, 0, :, :num].clone()
        self._prefix_values = self.values[:, 0, :, :num].clone()
        self._prefix_features = self.features[0, :num].clone()
        self._prefix = list(ids)

    @torch.inference_mode()
    def prefill(self, slots: list[int], prompts: list[list[int]]) -> Tensor:
        """Fill the slots with the prompts; return logits [prompts, vocab] after the last tokens."""
        start = len(self._prefix)
        skip = [start if p[:start] == self._prefix and len(p) > start else 0 for p in prompts]
        for slot, num_old in zip(slots, skip, strict=True):
            if num_old:
                self.keys[:, slot, :, :num_old] = self._prefix_keys
                self.values[:, slot, :, :num_old] = self._prefix_values
                self.features[slot, :num_old] = self._prefix_features
        lens = [len(p) - s for p, s in zip(prompts, skip, strict=True)]
        tokens = [t for p, s in zip(prompts, skip, strict=True) for t in p[s:]]
        pos = torch.cat([torch.arange(s, len(p)) for p, s in zip(prompts, skip, strict=True)])
        own = torch.tensor(slots).repeat_interleave(torch.tensor(lens))
        pos, own = pos.to(self.device), own.to(self.device)

        def mix(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.keys[i, own, :, pos] = k[: len(own)]
            self.values[i, own, :, pos] = v[: len(own)]
            if not any(skip):
                return attend(q, k, v, packing)
            cuts = pairwise(accumulate(lens, initial=0))
            pieces = zip(slots, skip, cuts, strict=True)
            mixed = [
                self._attend_after_prefix(i, slot, old, q[slice(*cut)]) for slot, old, cut in pieces
            ]
            return F.pad(torch.cat(mixed), (0, 0, 0, num_pad))

        num_pad = -len(tokens) % 128
        packing = pack([*lens, num_pad], self.device)
        tokens, pos_padded = tokens + [0] * num_pad, F.pad(pos, (0, num_pad))
        x, tapped = self._through(torch.tensor(tokens, device=self.device), pos_padded, mix)
        self.features[own, pos] = tapped[: len(own)]
        filled = torch.tensor([len(p) for p in prompts], device=self.device)
        self.lens[torch.tensor(slots, device=self.device)] = filled
        last = torch.tensor(lens, device=self.device).cumsum(0) - 1
        return self.model.head(x[last])

    def _attend_after_prefix(self, i: int, slot: int, num_old: int, q: Tensor) -> Tensor:
        """Return causal attention of a slot's new rows over its prefix and themselves.

        `i` is the layer. `q` is [rows, heads, dim], the result [rows, heads * dim].
        """
        total, group = num_old + len(q), self.model.heads // self.model.kv_heads
        keys = self.keys[i, slot, :, :total].repeat_interleave(group, dim=0)[None]
        values = self.values[i, slot, :, :total].repeat_interleave(group, dim=0)[None]
        mask = torch.ones(len(q), total, dtype=torch.bool, device=q.device).tril(num_old)
        out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], keys, values, attn_mask=mask)
        return out[0].transpose(0, 1).flatten(1)

    @torch.no_grad()
    def read(self, tokens: Tensor, lens: list[int]) -> tuple[Tensor, Tensor]:
        """Read whole sequences, one after another in `tokens` int64 [rows]; the cache is not used.

        Returns the final norm's output [rows, hidden] and the taps [rows, taps, hidden] bf16.
        """
        pos = torch.cat([torch.arange(num) for num in lens]).to(self.device)
        packing = pack(lens, self.device)
        return self._through(tokens, pos, lambda _, q, k, v: attend(q, k, v, packing))

    @torch.inference_mode()
    def decode(self, tokens: Tensor, running: Tensor) -> Tensor:
        """Run one step: `tokens` int64 and `running` bool [num_slots] to logits [num_slots, vocab].

        Slots that do not run keep their length; their logits mean nothing.
        """
        slots = torch.arange(self.num_slots, device=self.device)
        pos, heads = self.lens, self.model.kv_heads
        groups = self._groups(pos)

        def mix(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.keys[i, slots, :, pos] = k
            self.values[i, slots, :, pos] = v
            grouped = q.view(self.num_slots, heads, -1, self.model.head_dim)
            mixed = [
                F.scaled_dot_product_attention(
                    grouped[own],
                    self.keys[i, own, :, : mask.shape[-1]],
                    self.values[i, own, :, : mask.shape[-1]],
                    attn_mask=mask,
                )
                for own, mask in groups
            ]
            return torch.cat(mixed).reshape(self.num_slots, -1)

        x, tapped = self._through(tokens, pos, mix)
        self.features[slots, pos] = tapped
        self.lens = pos + running
        return self.model.head(x)

    def park(self, slots: list[int]) -> None:
        """Mark slots idle: they then have one position at most, and add little to attention."""
        self.lens[torch.tensor(slots, device=self.device)] = 0

    def _groups(self, pos: Tensor) -> list[tuple[slice, Tensor]]:
        """Return slices of neighbouring slots that attend together, each with its mask.

        A mask [slots, 1, 1, positions] is 0 where a slot has a token, else −inf. The query heads
        that share a key head are the rows of one product.
        """
        groups = []
        size = CPU_GROUP if self.device.type == "cpu" else self.num_slots
        for start in range(0, self.num_slots, size):
            own = slice(start, start + size)
            total = _round_up(int(pos[own].max()) + 1, SPAN)
            hidden = torch.arange(total, device=self.device)[None] > pos[own][:, None]
            mask = torch.zeros(hidden.shape, dtype=self.model.dtype, device=self.device)
            groups.append((own, mask.masked_fill_(hidden, float("-inf"))[:, None, None]))
        return groups

    def _through(
        self, tokens: Tensor, pos: Tensor, mix: Callable[[int, Tensor, Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Run rows through all layers: return final states [rows, hidden] and taps.

        The taps are [rows, taps, hidden] bf16. `mix` computes the attention of a layer from its
        number, queries, keys and values.
        """
        model = self.model
        x = model.embed[tokens]
        tapped: list[Tensor] = []
        for i, layer in enumerate(model.layers):
            if i in self.taps:
                tapped.append(x.to(torch.bfloat16))
            x = x + layer.out(mix(i, *model.project(layer, x, pos)))
            x = model.mlp(layer, x)
        x = model.norm(x, model.last_norm)
        if len(model.layers) in self.taps:
            tapped.append(x.to(torch.bfloat16))
        nothing = x.new_empty((len(x), 0, x.shape[1]), dtype=torch.bfloat16)
        return x, torch.stack(tapped, dim=1) if tapped else nothing


def _round_up(num: int, step: int) -> int:
    return -(-num // step) * step
