"""Lanes: the cache sequences in which the paths of a growing tree keep the head's keys and values.

Every node that gets children runs in a lane of its own. The lane holds the context and the node's
path in the same slots as a chain would, so a row's result is the same to the bit. Lanes share the
full blocks of the context. Their other blocks are borrowed from the cache while the head drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specdec.acceptance.trees import ROOT
from specdec.torch_engine.heads.interface import Reading
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache


class Lanes:
    """The lanes of one tree; the first lane is the sequence of the reading itself."""

    def __init__(self, reading: Reading, cache: KVCache) -> None:
        self._start = reading.end
        self._num_rows = reading.depth - 1
        self._cache = cache
        self._lanes = [reading.sequence]
        self._lane_of = {ROOT: reading.sequence}

    def take(self, nodes: Sequence[int], parents: Sequence[int]) -> dict[int, CachedSequence]:
        """Return a lane for each node of one depth; it holds all tokens before the node.

        `nodes` come the likeliest first; `parents` holds the parent of every node of the tree. The
        lanes of the previous depth are reused. If the cache has no room, the last nodes get none.
        """
        lane_of: dict[int, CachedSequence] = {}
        taken: set[CachedSequence] = set()
        waiting = []
        for node in nodes:
            # The first child continues in its parent's lane, so it needs no copy.
            lane = self._lane_of[parents[node]]
            if lane in taken:
                waiting.append(node)
            else:
                taken.add(lane)
                lane_of[node] = lane
        free = [lane for lane in self._lanes if lane not in taken]
        for node in waiting:
            own = free.pop() if free else self._new_lane()
            if own is None:
                break
            self._copy(self._lane_of[parents[node]], own)
            lane_of[node] = own
        self._lane_of = lane_of
        return lane_of

    def close(self) -> None:
        """Give the borrowed blocks back to the cache."""
        for lane in self._lanes[1:]:
            self._cache.discard(lane)

    def _new_lane(self) -> CachedSequence | None:
        own = self._start % self._cache.block_size
        lane = self._cache.fork(self._lanes[0], self._start - own)
        try:
            self._cache.extend(lane, np.zeros(own + self._num_rows, dtype=np.int32))
        except MemoryError:
            self._cache.discard(lane)
            return None
        self._lanes.append(lane)
        return lane

    def _copy(self, source: CachedSequence, lane: CachedSequence) -> None:
        """Copy the head's layer, the last of the cache, from the block in which the tree begins."""
        cache = self._cache
        first, end = self._start // cache.block_size, cache.blocks_for(self._start + self._num_rows)
        layer = cache.storage[-1]
        layer[:, lane.blocks[first:end]] = layer[:, source.blocks[first:end]]
