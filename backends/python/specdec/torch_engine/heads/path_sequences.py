"""The cache sequences in which the paths of a growing tree keep the head's keys and values.

Every node that gets children runs in a sequence of its own. It holds the context and the node's
path in the same slots as a chain would, so a row's result is the same to the bit. All share the
full blocks of the context. Their other blocks are borrowed from the cache while the head drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specdec.acceptance.trees import ROOT
from specdec.torch_engine.heads.interface import Reading
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache


class PathSequences:
    """The sequences of one tree; the first one is the sequence of the reading itself."""

    def __init__(self, reading: Reading, cache: KVCache) -> None:
        self._start = reading.end
        self._num_rows = reading.depth - 1
        self._cache = cache
        self._sequences = [reading.sequence]
        self._sequence_of = {ROOT: reading.sequence}

    def take(self, nodes: Sequence[int], parents: Sequence[int]) -> dict[int, CachedSequence]:
        """Return a sequence for each node of one depth; it holds all tokens before the node.

        `nodes` come the likeliest first; `parents` holds the parent of every node of the tree. The
        sequences of the previous depth are reused. If the cache is full, the last nodes get none.
        """
        sequence_of: dict[int, CachedSequence] = {}
        taken: set[CachedSequence] = set()
        waiting = []
        for node in nodes:
            # The first child continues in its parent's sequence, so it needs no copy.
            sequence = self._sequence_of[parents[node]]
            if sequence in taken:
                waiting.append(node)
            else:
                taken.add(sequence)
                sequence_of[node] = sequence
        free = [sequence for sequence in self._sequences if sequence not in taken]
        for node in waiting:
            own = free.pop() if free else self._new_sequence()
            if own is None:
                break
            self._copy(self._sequence_of[parents[node]], own)
            sequence_of[node] = own
        self._sequence_of = sequence_of
        return sequence_of

    def close(self) -> None:
        """Give the borrowed blocks back to the cache."""
        for sequence in self._sequences[1:]:
            self._cache.discard(sequence)

    def _new_sequence(self) -> CachedSequence | None:
        own = self._start % self._cache.block_size
        sequence = self._cache.fork(self._sequences[0], self._start - own)
        try:
            self._cache.extend(sequence, np.zeros(own + self._num_rows, dtype=np.int32))
        except MemoryError:
            self._cache.discard(sequence)
            return None
        self._sequences.append(sequence)
        return sequence

    def _copy(self, source: CachedSequence, sequence: CachedSequence) -> None:
        """Copy the head's layer, the last of the cache, from the block in which the tree begins."""
        cache = self._cache
        first, end = self._start // cache.block_size, cache.blocks_for(self._start + self._num_rows)
        layer = cache.storage[-1]
        layer[:, sequence.blocks[first:end]] = layer[:, source.blocks[first:end]]
