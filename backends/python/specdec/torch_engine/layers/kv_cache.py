"""The KV cache: keys and values of past tokens, and the sequences that own them.

The memory is a pool of blocks, each with the same number of positions. A sequence owns a list of
blocks. Sequences with the same beginning may share a block, which is copied before one of them
writes into it.

When a task ends, its sequence stays as a cached prefix. If the pool is full, the least recently
used prefix is dropped. Each round of a request sends its whole context again and finds it here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.token_ids import TokenIds
from specdec.torch_engine.config import ModelConfig

SPLIT_SIZE = 256
"""Positions in one split of attention (see attention.py). A cache block has the same number,
except with native kernels, whose blocks are smaller."""

MAX_DISCARD = 64
"""Largest number of tokens that may be cut off a cached sequence to reuse it without a copy. The
rejected end of a round is shorter. A longer end may be another conversation, which should stay."""


@dataclass(eq=False, slots=True)
class CachedSequence:
    """A sequence of tokens whose keys and values are in the pool, and the blocks that hold them."""

    tokens: TokenIds
    """[length] int32: the tokens; the keys and values of token i lie in blocks[i // block_size]."""
    blocks: list[int] = field(default_factory=list)
    in_use: bool = True
    last_used: int = 0
    salt: str = ""
    """The salt of the request; only requests with the same salt find the sequence."""
    num_read: int = 0
    """Leading positions that the drafting head has read; it can continue only from there."""

    @property
    def length(self) -> int:
        return len(self.tokens)


class KVCache:
    """The block pool of one model; used by the engine's thread only."""

    def __init__(
        self,
        config: ModelConfig,
        num_tokens: int,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
        block_size: int = SPLIT_SIZE,
        num_head_layers: int = 0,
    ) -> None:
        """Allocate a pool for `num_tokens` tokens, rounded up to whole blocks.

        `num_head_layers` is the number of layers of a drafting head; they follow the model's.
        """
        self.block_size = block_size
        self.num_blocks = self.blocks_for(num_tokens)
        shape = (
            *(config.num_layers + num_head_layers, 2, self.num_blocks),
            *(config.num_kv_heads, block_size, config.head_dim),
        )
        # Zeros, because masked positions are multiplied too, and 0 x NaN is NaN. On a CPU, pages
        # that numpy zeroes take no memory or time until they are written.
        if device.type == "cpu":
            zeros = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
            self.storage = torch.from_numpy(zeros).view(dtype).view(shape)
        else:
            self.storage = torch.zeros(shape, dtype=dtype, device=device)
        self._num_kv_heads = config.num_kv_heads
        self._references = np.zeros(self.num_blocks, dtype=np.int32)
        self._sequences: list[CachedSequence] = []
        self._clock = 0

    def blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks `num_tokens` tokens of one sequence need."""
        return -(-num_tokens // self.block_size)

    # -- the layout for PyTorch's layers; native kernels arrange a block differently ---------

    def layer(self, index: int) -> Tensor:
        """Return the keys and values of one layer, a view into the pool.

        Its shape is [2 (keys, values), blocks, kv_heads, block_size, head_dim].
        """
        return self.storage[index]

    def write_index(
        self, sequence: CachedSequence, positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the rows into which the keys and values of each position are written.

        The result is [len(positions), 2 * kv_heads] int64: row indices into
        `layer(i).view(-1, head_dim)`, those of the keys first.
        """
        blocks = np.asarray(sequence.blocks, dtype=np.int64)[positions // self.block_size]
        heads = np.arange(self._num_kv_heads)
        rows = (blocks[:, None] * self._num_kv_heads + heads) * self.block_size
        rows += (positions % self.block_size)[:, None]
        values_offset = self.num_blocks * self._num_kv_heads * self.block_size
        return np.concatenate((rows, rows + values_offset), axis=1)

    # -- sequences ---------------------------------------------------------------------------

    def acquire(self, tokens: TokenIds, *, is_read: bool = False, salt: str = "") -> CachedSequence:
        """Return a sequence that holds the longest cached prefix of `tokens`, which may be empty.

        The prefix never includes the last token, whose row yields the first logits. Only sequences
        with the same `salt` are searched. With `is_read`, the prefix ends where the drafting head
        stopped reading. Raises MemoryError if a block must be copied and the pool is full.
        """
        best, num_common = self._longest_prefix(tokens[:-1], salt, is_read=is_read)
        if best is None:
            sequence = CachedSequence(tokens[:0], salt=salt)
            self._sequences.append(sequence)
        elif not best.in_use and best.length - num_common <= MAX_DISCARD:
            sequence = best
            self.truncate(sequence, num_common)
        else:
            sequence = self.fork(best, num_common)
        sequence.in_use = True
        return sequence

    def release(self, sequence: CachedSequence) -> None:
        """Mark the sequence as no longer in use; it stays as a cached prefix."""
        self._clock += 1
        sequence.in_use, sequence.last_used = False, self._clock

    def num_cached(self, tokens: TokenIds, *, is_read: bool = False, salt: str = "") -> int:
        """Return how many leading tokens of `tokens` `acquire` would find; never the last token."""
        return self._longest_prefix(tokens[:-1], salt, is_read=is_read)[1]

    def fork(self, source: CachedSequence, length: int) -> CachedSequence:
        """Return a new sequence with the first `length` tokens of `source`.

        It shares the full blocks, and copies a partly filled last block. Raises MemoryError if the
        pool has no block for the copy.
        """
        num_shared = length // self.block_size
        sequence = CachedSequence(source.tokens[:length], source.blocks[: self.blocks_for(length)])
        sequence.num_read, sequence.salt = min(source.num_read, length), source.salt
        self._references[sequence.blocks] += 1
        self._sequences.append(sequence)
        if len(sequence.blocks) > num_shared:
            self._copy_last_block(sequence)
        return sequence

    def drop_copies(self, sequence: CachedSequence) -> None:
        """Discard idle sequences that are a prefix of another one, as forks leave them.

        Every idle sequence with the same salt is compared with `sequence`, which must be idle too.
        The shorter one is discarded if the longer one begins with all of its tokens.
        """
        for other in [each for each in self._sequences if each is not sequence]:
            if other.in_use or other.salt != sequence.salt:
                continue
            num_common = common_prefix_length(other.tokens, sequence.tokens)
            # A sequence stays if the drafting head has read more of it than of the other.
            if num_common == other.length and other.num_read <= sequence.num_read:
                self.discard(other)
            elif num_common == sequence.length and sequence.num_read <= other.num_read:
                self.discard(sequence)
                return

    def discard(self, sequence: CachedSequence, *, is_failed: bool = False) -> None:
        """Remove the sequence and give its blocks back.

        The blocks of a failed sequence are zeroed if no other sequence shares them. Attention
        multiplies unused slots by 0, and 0 times NaN is NaN.
        """
        blocks = [*sequence.blocks]
        self._drop_blocks(sequence, 0)
        if is_failed:
            self.storage[:, :, [block for block in blocks if not self._references[block]]] = 0
        self._sequences.remove(sequence)

    def truncate(self, sequence: CachedSequence, length: int) -> None:
        """Cut the sequence to its first `length` tokens, as after rejected draft tokens."""
        sequence.tokens = sequence.tokens[:length]
        sequence.num_read = min(sequence.num_read, length)
        self._drop_blocks(sequence, self.blocks_for(length))

    def extend(self, sequence: CachedSequence, tokens: TokenIds) -> None:
        """Append `tokens` [n] int32 to the sequence and reserve blocks for them.

        The caller writes their keys and values in the same pass. Raises MemoryError if the pool is
        full, which the reservations in admission.py prevent.
        """
        start = sequence.length
        if start % self.block_size and self._references[sequence.blocks[-1]] > 1:
            self._copy_last_block(sequence)
        num_needed = self.blocks_for(start + len(tokens)) - len(sequence.blocks)
        for _ in range(num_needed):
            neighbour = sequence.blocks[-1] + 1 if sequence.blocks else None
            sequence.blocks.append(self._allocate(neighbour))
        sequence.tokens = np.concatenate((sequence.tokens, tokens))

    def check_integrity(self) -> None:
        """Assert that the reference counts of all blocks match the sequences."""
        counted = np.zeros_like(self._references)
        for sequence in self._sequences:
            assert len(sequence.blocks) == self.blocks_for(sequence.length)
            np.add.at(counted, sequence.blocks, 1)
        assert (counted == self._references).all()

    # -- internals ---------------------------------------------------------------------------

    def _longest_prefix(
        self, tokens: TokenIds, salt: str, *, is_read: bool = False
    ) -> tuple[CachedSequence | None, int]:
        best: CachedSequence | None = None
        best_length = 0
        # The most recent ones come first: the previous round of a request left its context there.
        known = [sequence for sequence in self._sequences if sequence.salt == salt]
        recent = sorted(known, key=lambda sequence: -sequence.last_used)
        for sequence in recent:
            if best is not None and not best.in_use and best_length == len(tokens):
                break
            length = common_prefix_length(sequence.tokens, tokens)
            if is_read:
                length = min(length, sequence.num_read)
            # An idle one among equally long prefixes may be reused without a copy.
            if length > best_length or (length == best_length > 0 and not sequence.in_use):
                best, best_length = sequence, length
        return best, best_length

    def _copy_last_block(self, sequence: CachedSequence) -> None:
        shared = sequence.blocks[-1]
        own = self._allocate(None)
        self.storage[:, :, own] = self.storage[:, :, shared]
        self._references[shared] -= 1
        sequence.blocks[-1] = own

    def _drop_blocks(self, sequence: CachedSequence, num_kept: int) -> None:
        self._references[sequence.blocks[num_kept:]] -= 1
        del sequence.blocks[num_kept:]

    def _allocate(self, preferred: int | None) -> int:
        """Return a free block and mark it as used: `preferred` if it is free, else the lowest.

        Low numbers keep blocks close together, so that attention can read them in place. Drops the
        least recently used prefixes while no block is free. Raises MemoryError if all are in use.
        """
        while not (self._references == 0).any():
            idle = [sequence for sequence in self._sequences if not sequence.in_use]
            if not idle:
                raise MemoryError(f"all {self.num_blocks} blocks of the KV cache are in use")
            self.discard(min(idle, key=lambda sequence: sequence.last_used))
        if preferred is None or preferred >= self.num_blocks or self._references[preferred]:
            preferred = int(np.argmin(self._references != 0))
        self._references[preferred] = 1
        return preferred


def common_prefix_length(left: Seq[int] | TokenIds, right: Seq[int] | TokenIds) -> int:
    """Return the number of leading tokens that both have in common."""
    length = min(len(left), len(right))
    different = np.flatnonzero(np.asarray(left[:length]) != np.asarray(right[:length]))
    return int(different[0]) if len(different) else length
