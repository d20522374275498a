"""Padded shapes of passes, and the packing of a pass's inputs into one array.

A pass is a rectangle: all its sequences have equally many rows and equally many cache blocks.
Padding repeats existing entries: the last row of a sequence, the last sequence. A copy computes the
same bits and writes them to the same cache slots, so padding needs no slots of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from specdec.token_ids import TokenIds
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.layers.attention import SHORT_ROWS
from specdec.torch_engine.layers.kv_cache import SPLIT_SIZE

MAX_GRAPH_ROWS = 128
"""Rows of the largest pass that is captured. The arithmetic of a larger pass takes longer than its
launches, so a graph would save nothing."""


MIN_DRAFT_ROWS = 5
"""Graphs are captured up to at least this many rows per sequence. A draft engine needs them to read
the tokens confirmed since its last draft."""


class Bucket(NamedTuple):
    """The shape that a pass is padded to."""

    num_sequences: int
    num_rows: int
    """Rows of each sequence."""
    num_blocks: int
    """Cache blocks of each sequence."""

    @property
    def num_inputs(self) -> int:
        """Number of int64 entries in the packed inputs."""
        return self.num_sequences * (2 * self.num_rows + self.num_blocks)


class PassInputs(NamedTuple):
    """The inputs of a pass, as views into one int64 buffer on the device.

    S is the number of sequences, R the rows of each, N the cache blocks of each.
    """

    tokens: Tensor
    """[S, R] token ids."""
    positions: Tensor
    """[S, R] positions of the tokens in their sequences."""
    table: Tensor
    """[S, N]: the pool blocks of each sequence."""


def bucket_of(num_sequences: int, num_rows: int, num_blocks: int) -> Bucket:
    """Return the smallest bucket that holds a pass of this shape.

    Sequences and blocks are rounded up to a power of two, rows to 1 or to a power of two plus 1. So
    drafts of 1, 2, 4, 8 and 16 tokens, with the row before them, fit exactly.
    """
    # A pass over a prompt is never captured, so only its blocks are rounded.
    if num_rows > SHORT_ROWS:
        return Bucket(num_sequences, num_rows, _power_of_two(num_blocks))
    rows = 1 if num_rows == 1 else 1 + _power_of_two(num_rows - 1)
    return Bucket(_power_of_two(num_sequences), rows, _power_of_two(num_blocks))


def buckets_within(limits: EngineLimits) -> Iterator[Bucket]:
    """Yield each bucket that gets a graph, the largest first: the others then reuse its memory."""
    max_rows = max(1 + limits.max_draft_len, MIN_DRAFT_ROWS)
    max_blocks = -(-limits.max_seq_len // SPLIT_SIZE)
    num_pool_blocks = -(-limits.num_cache_tokens // SPLIT_SIZE)
    shapes = {
        bucket_of(sequences, rows, blocks)
        for sequences in _powers_to(limits.max_num_sequences)
        for rows in (1, *(1 + power for power in _powers_to(max_rows - 1)))
        for blocks in _powers_to(max_blocks)
    }
    for bucket in sorted(shapes, key=lambda each: each.num_inputs, reverse=True):
        # A shape with more padded blocks than the pool has is rare, and runs without a graph.
        fits = bucket.num_sequences * bucket.num_blocks <= max(num_pool_blocks, bucket.num_blocks)
        if fits and bucket.num_sequences * bucket.num_rows <= MAX_GRAPH_ROWS:
            yield bucket


def group(num_rows: Sequence[int]) -> list[list[int]]:
    """Return which sequences run together as one rectangle: lists of indices into `num_rows`.

    `num_rows` gives the rows of each sequence. A group of several sequences has at most
    MAX_GRAPH_ROWS rows, padding included. A sequence with more than SHORT_ROWS rows runs alone, so
    that no other one is padded to its length.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(num_rows)), key=lambda each: num_rows[each]):
        own = bucket_of(len(groups[-1]) + 1, num_rows[index], 1) if groups else None
        if (
            own is None
            or num_rows[index] > SHORT_ROWS
            or own.num_sequences * own.num_rows > MAX_GRAPH_ROWS
        ):
            groups.append([])
        groups[-1].append(index)
    return groups


def pack(
    bucket: Bucket,
    tokens: Sequence[TokenIds],
    positions: Sequence[npt.NDArray[np.int64]],
    blocks: Sequence[Sequence[int]],
) -> npt.NDArray[np.int64]:
    """Return the inputs of a pass in one array: [num_inputs] int64, laid out as `views` reads it.

    `tokens`, `positions` and `blocks` have one entry for each sequence.
    """
    num_sequences, num_rows, num_blocks = bucket
    packed = np.empty(bucket.num_inputs, dtype=np.int64)
    parts = np.split(packed, [num_sequences * num_rows, 2 * num_sequences * num_rows])
    _fill(parts[0].reshape(num_sequences, num_rows), tokens)
    _fill(parts[1].reshape(num_sequences, num_rows), positions)
    _fill(parts[2].reshape(num_sequences, num_blocks), blocks)
    return packed


def _fill(
    rectangle: npt.NDArray[np.int64],
    rows: Sequence[Sequence[int] | npt.NDArray[np.int32] | npt.NDArray[np.int64]],
) -> None:
    """Write the rows into the rectangle, padded in place.

    The last value of a row is repeated to the edge, and so is the last row.
    """
    for row, values in zip(rectangle, rows, strict=False):
        row[: len(values)] = values
        row[len(values) :] = values[-1]
    rectangle[len(rows) :] = rectangle[len(rows) - 1]


def views(bucket: Bucket, buffer: Tensor) -> PassInputs:
    """Return views of the packed inputs in the first num_inputs entries of an int64 buffer."""
    num_sequences, num_rows, num_blocks = bucket
    tokens, positions, table = buffer[: bucket.num_inputs].split(
        (num_sequences * num_rows, num_sequences * num_rows, num_sequences * num_blocks)
    )
    return PassInputs(
        tokens.view(num_sequences, num_rows),
        positions.view(num_sequences, num_rows),
        table.view(num_sequences, num_blocks),
    )


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def _powers_to(limit: int) -> list[int]:
    """Return 1, 2, 4 … up to the first power of two that reaches `limit`."""
    return [1 << exponent for exponent in range((limit - 1).bit_length() + 1)]
