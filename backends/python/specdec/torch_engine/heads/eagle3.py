"""The EAGLE-3 head, which drafts a chain or a tree token by token.

It follows Li et al. 2025 and vLLM's llama_eagle3.py. The head's row at position t reads the
target's state at t and the token at t + 1. For draft tokens of its own, it reads its own state of
the previous step instead. The head's keys and values are one more layer of the target's cache, so
they are shared, forked and dropped with the others.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specdec.token_ids import TokenIds
from specdec.torch_engine.heads.growing import NUM_BRANCHES, GrowingTree
from specdec.torch_engine.heads.interface import (
    NO_HEAD_PROPOSAL,
    HeadProposal,
    Reading,
    has_ended,
    offered,
)
from specdec.torch_engine.heads.path_sequences import PathSequences
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache
from specdec.torch_engine.sampler import Sampler


class Layer(Protocol):
    """The arithmetic of one EAGLE-3 head; PyTorch or the native kernels compute it."""

    def fuse(self, states: Tensor) -> Tensor:
        """Return the fused states [T, hidden] float32.

        `states` [T ≥ 2, 3 * hidden] float32 are the target's states at the three taps.
        """

    def run(self, rows: Rows, given: Tensor, cache: KVCache) -> tuple[Tensor, Tensor]:
        """Run the layer; return the asked rows after the final norm, and before it.

        `given` [T, hidden] float32 is the state that each row reads. Both results are
        [asked, hidden] float32. Writes the new keys and values into the cache.
        """


class Eagle3Head:
    """An EAGLE-3 head that reads the rows of a pass and drafts a chain or a tree."""

    def __init__(self, layer: Layer, sampler: Sampler, taps: tuple[int, ...]) -> None:
        self.taps = taps
        self._layer = layer
        self._sampler = sampler

    def read(self, readings: list[Reading], cache: KVCache) -> list[HeadProposal]:
        states = torch.cat([reading.states for reading in readings]).flatten(1)
        ends = np.cumsum([len(reading.states) for reading in readings])
        drafting = [n for n, reading in enumerate(readings) if reading.num_draft_tokens]
        hidden, carried = self._run(
            [(reading.sequence, reading.start, reading.tokens) for reading in readings],
            self._fused(states),
            [int(ends[n]) - 1 for n in drafting],
            cache,
        )
        found = [NO_HEAD_PROPOSAL] * len(readings)
        for draft, is_tree in ((self._chains, False), (self._trees, True)):
            own = [row for row, n in enumerate(drafting) if readings[n].is_tree is is_tree]
            if own:
                rows = own * 2 if len(own) == 1 else own
                wanted = [readings[drafting[row]] for row in own]
                proposals = draft(wanted, hidden[rows], carried[rows], cache)
                for row, proposal in zip(own, proposals, strict=True):
                    found[drafting[row]] = proposal
        return found

    def _chains(
        self, readings: list[Reading], hidden: Tensor, carried: Tensor, cache: KVCache
    ) -> list[HeadProposal]:
        draft_tokens: list[list[int]] = [[] for _ in readings]
        drafting = list(range(len(readings)))
        step = 0
        while drafting:
            draws = [readings[n].draw(draft_tokens[n]) for n in drafting]
            for n, token in zip(drafting, self._sampler.guess(hidden, draws), strict=True):
                draft_tokens[n].append(token)
            going = [
                row
                for row, n in enumerate(drafting)
                if len(draft_tokens[n]) < readings[n].num_draft_tokens
                and not has_ended(readings[n], draft_tokens[n])
            ]
            drafting = [drafting[row] for row in going]
            if drafting:
                hidden, carried = self._run(
                    [
                        (readings[n].sequence, readings[n].end + step, draft_tokens[n][-1:])
                        for n in drafting
                    ],
                    carried[going],
                    list(range(len(drafting))),
                    cache,
                )
            step += 1
        return [offered(reading, own) for reading, own in zip(readings, draft_tokens, strict=True)]

    def _trees(
        self, readings: list[Reading], hidden: Tensor, carried: Tensor, cache: KVCache
    ) -> list[HeadProposal]:
        trees = [GrowingTree(reading) for reading in readings]
        sequences = [PathSequences(reading, cache) for reading in readings]
        nodes = [(tree, node) for tree in trees for node in tree.deepen()]
        step = 0
        try:
            while True:
                draws = [tree.draw(node) for tree, node in nodes]
                rankings = self._sampler.rank(hidden, draws, NUM_BRANCHES)
                for (tree, node), ranking in zip(nodes, rankings, strict=True):
                    tree.add(node, ranking)
                row_of = {node: row for row, node in enumerate(nodes)}
                placed = [
                    (tree, node, sequence)
                    for tree, own in zip(trees, sequences, strict=True)
                    for node, sequence in own.take(tree.deepen(), tree.parents).items()
                ]
                if not placed:
                    return [tree.proposal() for tree in trees]
                nodes = [(tree, node) for tree, node, _ in placed]
                hidden, carried = self._run(
                    [
                        (sequence, tree.reading.end + step, tree.tokens[node : node + 1])
                        for tree, node, sequence in placed
                    ],
                    carried[[row_of[tree, tree.parents[node]] for tree, node in nodes]],
                    list(range(len(nodes))),
                    cache,
                )
                step += 1
        finally:
            for each in sequences:
                each.close()

    def _fused(self, states: Tensor) -> Tensor:
        """Return the fused states; a single row comes twice (see linear.py)."""
        return (
            self._layer.fuse(states) if len(states) > 1 else self._layer.fuse(states.repeat(2, 1))
        )

    def _run(
        self,
        chunks: list[tuple[CachedSequence, int, TokenIds | list[int]]],
        given: Tensor,
        asked: list[int],
        cache: KVCache,
    ) -> tuple[Tensor, Tensor]:
        """Run rows of the head; return the rows `asked`, after the final norm and before it.

        A chunk is a sequence, the position of its first row, and the tokens that its rows read.
        Each row reads the token at the next position. `given` [rows, hidden] float32 are the states
        that the rows read. Both results are [asked, hidden] float32. A single asked row comes
        twice.
        """
        positions = [start + np.arange(len(tokens)) for _, start, tokens in chunks]
        tokens = [np.asarray(tokens, dtype=np.int32) for _, _, tokens in chunks]
        # A product with one row would sum in another order (see linear.py).
        if sum(map(len, tokens)) == 1:
            positions, tokens = [positions[0].repeat(2)], [tokens[0].repeat(2)]
            given = given[:1].repeat(2, 1)
        if len(asked) == 1:
            asked = asked * 2
        rows = Rows(
            np.concatenate(tokens),
            [sequence for sequence, _, _ in chunks],
            positions,
            np.asarray(asked, dtype=np.int64),
        )
        return self._layer.run(rows, given, cache)
