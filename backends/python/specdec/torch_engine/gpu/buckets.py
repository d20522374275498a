"""The shapes that passes are padded to, and the inputs of a pass in one array.

A pass is a rectangle: sequences times rows, and the blocks of the longest one. What is missing
repeats what is there: the last row of a sequence, the last sequence. A copy computes and writes the
same bits in the same places, so padding needs no place of its own in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.kv_cache import SPLIT_SIZE, TokenIds

MAX_GRAPH_ROWS = 128
"""Rows of the largest pass that is captured; beyond, launching costs less than computing."""

SHORT_ROWS = 17
"""Sequences with up to this many rows (decoding, verifying 16 drafts) run together."""

MIN_DRAFT_ROWS = 5
"""What a draft engine has to catch up with in a round: what the target said meanwhile."""


class Bucket(NamedTuple):
    """A padded shape."""

    num_sequences: int
    num_rows: int
    """Of each sequence."""
    num_blocks: int
    """Of each sequence's keys and values."""

    @property
    def num_inputs(self) -> int:
        return self.num_sequences * (2 * self.num_rows + self.num_blocks)


class PassInputs(NamedTuple):
    """Views into one int64 buffer on the device."""

    tokens: Tensor
    """[S, R]."""
    positions: Tensor
    """[S, R]."""
    table: Tensor
    """[S, N]: the pool blocks of each sequence."""


def bucket_of(num_sequences: int, num_rows: int, num_blocks: int) -> Bucket:
    """The smallest bucket that holds so much: powers of two, and one row more than drafts."""
    if num_rows > SHORT_ROWS:  # A prompt's rows, which are never captured.
        return Bucket(num_sequences, num_rows, _power_of_two(num_blocks))
    rows = 1 if num_rows == 1 else 1 + _power_of_two(num_rows - 1)
    return Bucket(_power_of_two(num_sequences), rows, _power_of_two(num_blocks))


def buckets_within(limits: EngineLimits) -> Iterator[Bucket]:
    """Every bucket worth a graph, the largest first: its memory then serves all others."""
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
        # Padding may exceed what the pool holds; such a mix is rare enough to run uncaptured.
        fits = bucket.num_sequences * bucket.num_blocks <= max(num_pool_blocks, bucket.num_blocks)
        if fits and bucket.num_sequences * bucket.num_rows <= MAX_GRAPH_ROWS:
            yield bucket


def group(num_rows: Sequence[int]) -> list[list[int]]:
    """Sequences that run as one rectangle: indices into `num_rows`, the rows of each.

    Of a size that is captured, and so that no sequence is padded to a much longer one's rows.
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
    """[num_inputs] int64: what `views` takes apart; one entry each for every sequence."""
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
    """In place: each row and the last repeated to the edges."""
    for place, values in zip(rectangle, rows, strict=False):
        place[: len(values)] = values
        place[len(values) :] = values[-1]
    rectangle[len(rows) :] = rectangle[len(rows) - 1]


def views(bucket: Bucket, buffer: Tensor) -> PassInputs:
    """The parts of a buffer's first num_inputs entries."""
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
    """The smallest one that is at least `number`."""
    return 1 << (number - 1).bit_length()


def _powers_to(limit: int) -> list[int]:
    """1, 2, 4 … up to the first that reaches `limit`."""
    return [1 << exponent for exponent in range((limit - 1).bit_length() + 1)]
