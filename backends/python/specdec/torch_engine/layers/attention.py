"""Attention over the block pool, in splits of fixed size.

One split is one block of SPLIT_SIZE positions. The products of a row with a block do not depend on
how many other rows or blocks the same call computes. The softmax runs over whole blocks, and the
blocks' results are added in float32, in the order of the sequence. So a row's result depends on its
own sequence alone; tests/unit/torch_engine/layers/test_row_invariance.py checks it.

Blocks are read in place if those of a batch lie close together in the pool, and gathered otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.torch_engine.layers.kv_cache import SPLIT_SIZE, CachedSequence

MAX_RANGE_WASTE = 1.5
"""Largest ratio of blocks read to blocks needed at which a range of the pool is read in place."""

SHORT_ROWS = 17
"""Sequences with at most this many rows (decoding, verification of up to 16 draft tokens) are
computed in one group."""


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Index tensors of one group of sequences, built once per pass and used by every layer.

    The group has B sequences, padded to R rows and N blocks each, and reads I blocks of the pool.
    """

    rows: Tensor
    """[I, R] int64: the batch rows whose queries are multiplied with each block read."""
    blocks: slice | Tensor
    """The pool blocks to read: a range, or their indices [I] int64."""
    mask: Tensor
    """[I, 1, R, 1, SPLIT_SIZE] float32: 0 for positions that the row attends to, else −inf."""
    table: Tensor | None
    """[B, N] int64: for each sequence's n-th block, its index among those read; None if this is
    [[0], [1], …]."""
    table_mask: Tensor | None
    """[B, N, 1, 1, 1, 1] bool: which entries of `table` are no padding; None if all are real."""
    inverse: Tensor | None
    """[I] int64: index of each read block in the flattened `table`; None if `table` is None."""
    valid: Tensor | None
    """[rows out] int64, indices into B * R: the rows that are no padding; None without padding."""
    out_rows: Tensor
    """[rows out] int64: the batch row of each row that is no padding."""


def plan(
    sequences: list[CachedSequence],
    positions: list[npt.NDArray[np.int64]],
    device: torch.device,
) -> list[AttentionGroup]:
    """Group the sequences of a batch: those with few rows together, each longer one alone.

    `positions[i]` are the positions of sequence i's rows, ascending; the rows of the batch are in
    the order of the sequences. The index tensors are made on `device`.
    """
    starts = np.concatenate(([0], np.cumsum([len(own) for own in positions])))
    short = [i for i, own in enumerate(positions) if len(own) <= SHORT_ROWS]
    groups = [short] if short else []
    groups += [[i] for i, own in enumerate(positions) if len(own) > SHORT_ROWS]
    return [
        _plan_group(
            [sequences[i] for i in group], [positions[i] for i in group], starts[group], device
        )
        for group in groups
    ]


def _plan_group(
    sequences: list[CachedSequence],
    positions: list[npt.NDArray[np.int64]],
    starts: npt.NDArray[np.int64],
    device: torch.device,
) -> AttentionGroup:
    num_rows = max(len(own) for own in positions)
    num_blocks = [int(own[-1]) // SPLIT_SIZE + 1 for own in positions]
    used = np.concatenate([seq.blocks[:n] for seq, n in zip(sequences, num_blocks, strict=True)])
    owner = np.repeat(np.arange(len(sequences)), num_blocks)
    order = np.concatenate([np.arange(n) for n in num_blocks])

    lowest, span = int(used.min()), int(used.max()) - int(used.min()) + 1
    # A block that two sequences share must be read once for each, which a range cannot do.
    in_place = span <= MAX_RANGE_WASTE * len(used) and len(np.unique(used)) == len(used)
    if in_place:
        read: slice | Tensor = slice(lowest, lowest + span)
        place, num_read = used - lowest, span
    else:
        read = torch.from_numpy(used.astype(np.int64)).to(device)
        place, num_read = np.arange(len(used)), len(used)

    padded_rows = np.zeros((len(sequences), num_rows), dtype=np.int64)
    padded_positions = np.zeros((len(sequences), num_rows), dtype=np.int64)
    valid = np.zeros((len(sequences), num_rows), dtype=bool)
    for i, (own, start) in enumerate(zip(positions, starts, strict=True)):
        padded_rows[i, : len(own)] = np.arange(start, start + len(own))
        padded_positions[i, : len(own)] = own
        valid[i, : len(own)] = True

    rows = np.zeros((num_read, num_rows), dtype=np.int64)
    rows[place] = padded_rows[owner]
    # A range also reads blocks that no row needs; their scores are finite and are not used.
    last_visible = np.full((num_read, num_rows), SPLIT_SIZE, dtype=np.int64)
    last_visible[place] = padded_positions[owner] - order[:, None] * SPLIT_SIZE
    hidden = np.arange(SPLIT_SIZE) > last_visible[:, :, None]
    mask = np.where(hidden, np.float32("-inf"), np.float32(0))[:, None, :, None, :]

    table = np.zeros((len(sequences), max(num_blocks)), dtype=np.int64)
    exists = np.zeros(table.shape, dtype=bool)
    table[owner, order], exists[owner, order] = place, True
    inverse = np.zeros(num_read, dtype=np.int64)
    inverse[place] = owner * table.shape[1] + order
    identity = table.shape == (num_read, 1) and (table[:, 0] == np.arange(num_read)).all()

    def tensor(array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return AttentionGroup(
        rows=tensor(rows),
        blocks=read,
        mask=tensor(mask),
        table=None if identity else tensor(table),
        table_mask=None if exists.all() else tensor(exists[:, :, None, None, None, None]),
        inverse=None if identity else tensor(inverse),
        valid=None if valid.all() else tensor(np.flatnonzero(valid)),
        out_rows=tensor(padded_rows[valid]),
    )


def attend(queries: Tensor, cache: Tensor, groups: list[AttentionGroup]) -> Tensor:
    """Return the causal attention of every batch row over its own sequence.

    `queries` [T, kv_heads, G, head_dim] are already scaled; `cache` is the result of
    KVCache.layer. Returns [T, kv_heads * G * head_dim], in the dtype of queries and cache.
    """
    if len(groups) == 1 and groups[0].valid is None:
        return _attend_group(queries, cache, groups[0])
    out = queries.new_empty(queries.shape[0], queries.shape[1:].numel())
    for group in groups:
        result = _attend_group(queries, cache, group)
        out.index_copy_(0, group.out_rows, result if group.valid is None else result[group.valid])
    return out


def _attend_group(queries: Tensor, cache: Tensor, group: AttentionGroup) -> Tensor:
    """Return the attention of one group, padding included: [B * R, kv_heads * G * head_dim]."""
    _, num_kv_heads, num_grouped, head_dim = queries.shape
    num_read, num_rows = group.rows.shape
    keys, values = cache[0, group.blocks], cache[1, group.blocks]

    looking = queries[group.rows].transpose(1, 2)  # [I, kv_heads, R, G, head_dim]
    looking = looking.reshape(num_read * num_kv_heads, num_rows * num_grouped, head_dim)
    scores = torch.bmm(looking, keys.reshape(-1, SPLIT_SIZE, head_dim).transpose(1, 2))
    masked = scores.view(num_read, num_kv_heads, num_rows, num_grouped, SPLIT_SIZE) + group.mask

    weights = _softmax_over_blocks(masked, group).to(queries.dtype)
    mixed = torch.bmm(
        weights.view(num_read * num_kv_heads, num_rows * num_grouped, SPLIT_SIZE),
        values.reshape(-1, SPLIT_SIZE, head_dim),
    ).view(num_read, num_kv_heads, num_rows, num_grouped, head_dim)
    if group.table is not None:
        parts = mixed.float()[group.table]  # [B, N, kv_heads, R, G, head_dim]
        if group.table_mask is not None:
            parts = torch.where(group.table_mask, parts, 0.0)
        # Add block by block, because torch.sum may change its order with N.
        total = parts[:, 0]
        for n in range(1, parts.shape[1]):
            total = total + parts[:, n]
        mixed = total.to(queries.dtype)
    return mixed.transpose(1, 2).reshape(-1, num_kv_heads * num_grouped * head_dim)


def _softmax_over_blocks(scores: Tensor, group: AttentionGroup) -> Tensor:
    """Return the softmax of the scores over all blocks of each sequence.

    Both are [I, kv_heads, R, G, SPLIT_SIZE] float32.
    """
    if group.table is None or group.inverse is None:
        return torch.softmax(scores, dim=-1)
    rows = scores[group.table]  # [B, N, kv_heads, R, G, SPLIT_SIZE]
    if group.table_mask is not None:
        rows = torch.where(group.table_mask, rows, float("-inf"))
    rows = rows.permute(0, 2, 3, 4, 1, 5)
    weights = torch.softmax(rows.flatten(-2), dim=-1).view(rows.shape)
    per_block = weights.permute(0, 4, 1, 2, 3, 5).flatten(0, 1)
    return per_block[group.inverse]
