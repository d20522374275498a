"""Attention over ragged sequences: those of like length side by side, so that little is padded.

All sequences of a batch lie behind each other as rows. A GPU wants few large products, so
sequences of like length share one; a CPU has nothing to gain from that, and takes them singly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# cuDNN plans each new shape of attention anew, and here every batch has other shapes.
torch.backends.cuda.enable_cudnn_sdp(False)

MOST_PADDING = 1.3
"""How much longer than the shortest of a piece its longest sequence may be."""


class _Moved(torch.autograd.Function):
    """Rows put elsewhere: `there` says whence, `back` the way back; the number of rows is no row.

    A gradient goes back as the rows came. PyTorch's own would add it up, with atomics.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(there, back)
        return _at(rows, there)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        there, back = ctx.saved_tensors
        return _Moved.apply(grads[0], back, there), None, None


def _at(rows: Tensor, places: Tensor) -> Tensor:
    return torch.cat((rows, rows.new_zeros(1, *rows.shape[1:]))).index_select(0, places)


@dataclass(frozen=True)
class Packing:
    """Rows of sequences, laid out in pieces of sequences that stand side by side."""

    members: tuple[tuple[int, ...], ...]
    """The sequences of each piece."""
    longest: tuple[int, ...]
    """Rows that a sequence of each piece is padded to."""
    there: Tensor
    """int64 [padded rows]: which row stands there; the number of rows where none does."""
    back: Tensor
    """int64 [rows]: where each row stands."""

    def spread(self, rows: Tensor) -> list[Tensor]:
        """[rows, …] → [members, longest, …] for each piece; zeros behind a sequence's end."""
        moved: Tensor = _Moved.apply(rows, self.there, self.back)
        sizes = [len(own) * num for own, num in zip(self.members, self.longest, strict=True)]
        pieces = zip(moved.split(sizes), self.members, strict=True)
        return [piece.unflatten(0, (len(own), -1)) for piece, own in pieces]

    def gather(self, pieces: Sequence[Tensor]) -> Tensor:
        """The way back: [rows, …]."""
        flat = torch.cat([piece.flatten(0, 1) for piece in pieces])
        moved: Tensor = _Moved.apply(flat, self.back, self.there)
        return moved


def pack(lens: list[int], device: torch.device) -> Packing:
    """Pieces of the sequences whose rows lie behind each other; empty sequences are left out."""
    return _packed(lens, _alike(lens, joined=device.type != "cpu"), device)


def pack_like(packing: Packing, lens: list[int], device: torch.device) -> Packing:
    """The same for other rows of the same sequences, piece for piece; `lens` may have zeros."""
    return _packed(lens, packing.members, device)


def _packed(lens: list[int], groups: Sequence[tuple[int, ...]], device: torch.device) -> Packing:
    starts = [0, *accumulate(lens)]
    longest = [max(1, *(lens[member] for member in members)) for members in groups]
    num_padded = sum(len(own) * num for own, num in zip(groups, longest, strict=True))
    there = torch.full((num_padded,), starts[-1])
    back = torch.empty(starts[-1], dtype=torch.int64)
    at = 0
    for members, num in zip(groups, longest, strict=True):
        for member in members:
            start, length = starts[member], lens[member]
            there[at : at + length] = torch.arange(start, start + length)
            back[start : start + length] = torch.arange(at, at + length)
            at += num
    return Packing(tuple(groups), tuple(longest), there.to(device), back.to(device))


def _alike(lens: list[int], *, joined: bool) -> list[tuple[int, ...]]:
    """Sequence numbers in groups, each by ascending length."""
    order = [i for i in range(len(lens)) if lens[i]]
    if not joined:
        return [(i,) for i in order]
    groups: list[list[int]] = []
    for number in sorted(order, key=lambda i: lens[i]):
        if groups and lens[number] <= MOST_PADDING * lens[groups[-1][0]]:
            groups[-1].append(number)
        else:
            groups.append([number])
    return [tuple(group) for group in groups]


def attend(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """Causal attention of each sequence; q [rows, heads, dim], k and v with as many or fewer heads.

    Returns [rows, heads * dim].
    """
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = (each.repeat_interleave(group, dim=1) for each in (k, v))
    mixed = []
    for own in zip(*(packing.spread(each) for each in (q, k, v)), strict=True):
        queries, keys, values = (each.transpose(1, 2) for each in own)
        out = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        mixed.append(out.transpose(1, 2))
    return packing.gather(mixed).flatten(1)
