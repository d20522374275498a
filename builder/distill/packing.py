"""Attention over sequences of different lengths, grouped by similar length.

The rows of a batch's sequences follow one another. A GPU wants few large products, so sequences
of similar length share one, with little padding. A CPU gains nothing from that, so there each
sequence has a product of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# cuDNN makes a plan for each new shape of attention, and here every batch has other shapes.
torch.backends.cuda.enable_cudnn_sdp(False)

MAX_PADDING = 1.3
"""Largest length of a sequence, relative to the shortest one of its piece."""


class _Moved(torch.autograd.Function):
    """A function that moves rows to other positions, and the gradient back.

    `there` holds the source of each new row, or the number of rows for a row of zeros. `back` holds
    the inverse. PyTorch's own gradient would add rows up with atomics.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(there, back)
        return _at(rows, there)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        there, back = ctx.saved_tensors
        return _Moved.apply(grads[0], back, there), None, None


def _at(rows: Tensor, indices: Tensor) -> Tensor:
    """Return the rows at these indices; the number of rows stands for a row of zeros."""
    return torch.cat((rows, rows.new_zeros(1, *rows.shape[1:]))).index_select(0, indices)


@dataclass(frozen=True)
class Packing:
    """A layout of sequences in pieces, which hold padded sequences side by side."""

    members: tuple[tuple[int, ...], ...]
    """The sequence numbers in each piece."""
    longest: tuple[int, ...]
    """Number of rows that each sequence of a piece is padded to."""
    there: Tensor
    """int64 [padded rows]: the row at each padded position; the number of rows for padding."""
    back: Tensor
    """int64 [rows]: the padded position of each row."""

    def spread(self, rows: Tensor) -> list[Tensor]:
        """Return each piece of rows [rows, …] as [members, longest, …].

        After a sequence's end there are zeros.
        """
        moved: Tensor = _Moved.apply(rows, self.there, self.back)
        sizes = [len(own) * num for own, num in zip(self.members, self.longest, strict=True)]
        pieces = zip(moved.split(sizes), self.members, strict=True)
        return [piece.unflatten(0, (len(own), -1)) for piece, own in pieces]

    def gather(self, pieces: Sequence[Tensor]) -> Tensor:
        """Undo `spread`: return [rows, …]."""
        flat = torch.cat([piece.flatten(0, 1) for piece in pieces])
        moved: Tensor = _Moved.apply(flat, self.back, self.there)
        return moved


def pack(lens: list[int], device: torch.device) -> Packing:
    """Return the pieces for sequences of these lengths, whose rows lie one after another.

    Empty sequences are left out.
    """
    return _packed(lens, _alike(lens, joined=device.type != "cpu"), device)


def pack_like(packing: Packing, lens: list[int], device: torch.device) -> Packing:
    """Return the same pieces for other rows of the same sequences.

    `lens` may have zeros here.
    """
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
    """Return groups of sequence numbers, by ascending length.

    Unless `joined`, each sequence is a group of its own.
    """
    order = [i for i in range(len(lens)) if lens[i]]
    if not joined:
        return [(i,) for i in order]
    groups: list[list[int]] = []
    for number in sorted(order, key=lambda i: lens[i]):
        if groups and lens[number] <= MAX_PADDING * lens[groups[-1][0]]:
            groups[-1].append(number)
        else:
            groups.append([number])
    return [tuple(group) for group in groups]


def attend(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """Return causal attention within each sequence: [rows, heads * dim].

    `q` is [rows, heads, dim]; `k` and `v` have as many heads or fewer.
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
