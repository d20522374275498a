"""Keys and values of past tokens, and which sequences own them.

Memory is a pool of blocks of equally many positions. A sequence owns a list of blocks; a block may
be shared by sequences with the same beginning and is copied before one of them writes into it.
When a request ends, its sequence stays as a cached prefix until the room is needed (least
recently used first): the next round of a speculative request re-sends its whole prefix and finds
all of it here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.torch_engine.config import ModelConfig

SPLIT_SIZE = 256
"""Positions in one split of attention (see attention.py), and in a block where PyTorch computes."""

MAX_DISCARD = 64
"""A cached sequence is taken over, rather than copied, when at most this many of its last tokens
are lost by it: the rejected tail of a round, not the rest of someone's conversation."""

TokenIds = npt.NDArray[np.int32]


@dataclass(eq=False, slots=True)
class CachedSequence:
    """Tokens whose keys and values are in the pool, and the blocks that hold them."""

    tokens: TokenIds
    """[length] int32; position i lives in blocks[i // block_size]."""
    blocks: list[int] = field(default_factory=list)
    in_use: bool = True
    last_used: int = 0
    salt: str = ""
    """Only requests with this salt find the sequence."""
    num_read: int = 0
    """Positions that the drafting head has read; it needs all that come before a row."""

    @property
    def length(self) -> int:
        return len(self.tokens)


class KVCache:
    """The block pool of one model; not thread-safe, the engine's thread owns it."""

    def __init__(
        self,
        config: ModelConfig,
        num_tokens: int,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
        block_size: int = SPLIT_SIZE,
        num_head_layers: int = 0,
    ) -> None:
        """`num_head_layers`: of a drafting head, behind the model's own."""
        self.block_size = block_size
        self.num_blocks = self.blocks_for(num_tokens)
        shape = (
            *(config.num_layers + num_head_layers, 2, self.num_blocks),
            *(config.num_kv_heads, block_size, config.head_dim),
        )
        # Zeros, because a masked position is still multiplied, and 0 x NaN is NaN. On a CPU they
        # come from numpy, whose zeroed pages cost nothing until they are written.
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
        """Blocks that so many tokens of one sequence fill."""
        return -(-num_tokens // self.block_size)

    # -- what PyTorch's layers read and write; native ones arrange a block their own way ------

    def layer(self, index: int) -> Tensor:
        """[2 (keys, values), blocks, kv_heads, block_size, head_dim] of one layer."""
        return self.storage[index]

    def write_index(self, sequence: CachedSequence, positions: npt.NDArray[np.int64]) -> TokenIds:
        """Rows of `layer(i).view(-1, head_dim)` for each position: [len, 2 * kv_heads] int64."""
        blocks = np.asarray(sequence.blocks, dtype=np.int64)[positions // self.block_size]
        heads = np.arange(self._num_kv_heads)
        rows = (blocks[:, None] * self._num_kv_heads + heads) * self.block_size
        rows += (positions % self.block_size)[:, None]
        values_offset = self.num_blocks * self._num_kv_heads * self.block_size
        return np.concatenate((rows, rows + values_offset), axis=1)

    # -- sequences ---------------------------------------------------------------------------

    def acquire(self, tokens: TokenIds, *, is_read: bool = False, salt: str = "") -> CachedSequence:
        """Return a sequence with the longest cached prefix of `tokens`, less the last, of `salt`.

        The last token is always left to compute: its row yields the first logits. `is_read`: the
        drafting head must have read the prefix, too.
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
        """Keeps the sequence as a cached prefix."""
        self._clock += 1
        sequence.in_use, sequence.last_used = False, self._clock

    def num_cached(self, tokens: TokenIds, *, is_read: bool = False, salt: str = "") -> int:
        """Return how many tokens of `tokens`, less the last, `acquire` would find."""
        return self._longest_prefix(tokens[:-1], salt, is_read=is_read)[1]

    def fork(self, source: CachedSequence, length: int) -> CachedSequence:
        """A new sequence with the first `length` tokens: full blocks shared, the rest copied."""
        num_shared = length // self.block_size
        sequence = CachedSequence(source.tokens[:length], source.blocks[: self.blocks_for(length)])
        sequence.num_read, sequence.salt = min(source.num_read, length), source.salt
        self._references[sequence.blocks] += 1
        self._sequences.append(sequence)
        if len(sequence.blocks) > num_shared:
            self._copy_last_block(sequence)
        return sequence

    def drop_copies(self, sequence: CachedSequence) -> None:
        """Discards idle sequences that begin another of these: what forks leave behind.

        Of `sequence` and the others, those whose tokens are all the beginning of a longer one.
        """
        for other in [each for each in self._sequences if each is not sequence]:
            if other.in_use or other.salt != sequence.salt:
                continue
            num_common = common_prefix_length(other.tokens, sequence.tokens)
            # What the drafting head has read of one alone stays.
            if num_common == other.length and other.num_read <= sequence.num_read:
                self.discard(other)
            elif num_common == sequence.length and sequence.num_read <= other.num_read:
                self.discard(sequence)
                return

    def discard(self, sequence: CachedSequence, *, is_failed: bool = False) -> None:
        """Give the sequence's blocks back.

        Those of a failed sequence are cleared: attention multiplies what lies in unused slots by 0,
        and 0 times NaN is NaN.
        """
        blocks = [*sequence.blocks]
        self._drop_blocks(sequence, 0)
        if is_failed:
            self.storage[:, :, [block for block in blocks if not self._references[block]]] = 0
        self._sequences.remove(sequence)

    def truncate(self, sequence: CachedSequence, length: int) -> None:
        """Forgets the tokens from `length` on: rejected drafts."""
        sequence.tokens = sequence.tokens[:length]
        sequence.num_read = min(sequence.num_read, length)
        self._drop_blocks(sequence, self.blocks_for(length))

    def extend(self, sequence: CachedSequence, tokens: TokenIds) -> None:
        """Makes room for `tokens` behind the sequence and records them as cached.

        The caller writes their keys and values in the same pass. Raises MemoryError when the pool
        is full; the scheduler's reservations keep that from happening.
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
        """Every reference is a sequence's; for idle time and tests."""
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
        # What this request's last round left is the most recent that fits.
        known = [sequence for sequence in self._sequences if sequence.salt == salt]
        recent = sorted(known, key=lambda sequence: -sequence.last_used)
        for sequence in recent:
            if best is not None and not best.in_use and best_length == len(tokens):
                break
            length = common_prefix_length(sequence.tokens, tokens)
            if is_read:
                length = min(length, sequence.num_read)
            # Of equals, an idle one can be taken over without copying.
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
        """A free block: the preferred one, else the lowest (a dense range is read in place)."""
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
    """Number of equal leading tokens."""
    length = min(len(left), len(right))
    different = np.flatnonzero(np.asarray(left[:length]) != np.asarray(right[:length]))
    return int(different[0]) if len(different) else length
