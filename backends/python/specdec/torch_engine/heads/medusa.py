"""Medusa heads: each drafts one position from the target's last state.

They follow Cai et al. 2024. From the state at position p, head i ≥ 0 proposes the token at position
p + i + 2. The token at p + 1 is the target's own.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu

from specdec.torch_engine.heads.growing import NUM_BRANCHES, GrowingTree
from specdec.torch_engine.heads.interface import (
    NO_HEAD_PROPOSAL,
    HeadProposal,
    Reading,
    has_ended,
    offered,
)
from specdec.torch_engine.heads.weights import MedusaWeights
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.layers.linear import Linear
from specdec.torch_engine.sampler import Sampler

Block = tuple[Linear, Tensor]
"""One residual block: a matrix [hidden, hidden] and its bias [hidden] float32."""


class MedusaHead:
    """Medusa heads that draft a chain, one drawn token per position, or a tree of likely tokens."""

    taps: tuple[int, ...] = ()

    def __init__(self, weights: MedusaWeights, sampler: Sampler) -> None:
        self._heads = [
            [(Linear(matrix), bias) for matrix, bias in blocks] for blocks in weights.heads
        ]
        self._dtype = weights.head_rows.dtype
        self._sampler = sampler

    def read(self, readings: list[Reading], cache: KVCache) -> list[HeadProposal]:  # noqa: ARG002
        found = [NO_HEAD_PROPOSAL] * len(readings)
        for draft, is_tree in ((self._chains, False), (self._trees, True)):
            own = [
                n
                for n, reading in enumerate(readings)
                if reading.num_draft_tokens and reading.is_tree is is_tree
            ]
            for n, proposal in zip(own, draft([readings[n] for n in own]), strict=True):
                found[n] = proposal
        return found

    def _chains(self, readings: list[Reading]) -> list[HeadProposal]:
        draft_tokens: list[list[int]] = [[] for _ in readings]
        for number, blocks in enumerate(self._heads):
            wanted = [
                n
                for n, reading in enumerate(readings)
                if reading.num_draft_tokens > number and not has_ended(reading, draft_tokens[n])
            ]
            if not wanted:
                break
            x = self._run(blocks, [readings[n] for n in wanted])
            draws = [readings[n].draw(draft_tokens[n]) for n in wanted]
            for n, token in zip(wanted, self._sampler.guess(x, draws), strict=True):
                draft_tokens[n].append(token)
        return [offered(reading, own) for reading, own in zip(readings, draft_tokens, strict=True)]

    def _trees(self, readings: list[Reading]) -> list[HeadProposal]:
        trees = [GrowingTree(reading) for reading in readings]
        for blocks in self._heads:
            nodes = [(tree, node) for tree in trees for node in tree.deepen()]
            if not nodes:
                break
            x = self._run(blocks, [tree.reading for tree, _ in nodes])
            draws = [tree.draw(node) for tree, node in nodes]
            rankings = self._sampler.rank(x, draws, NUM_BRANCHES)
            for (tree, node), ranking in zip(nodes, rankings, strict=True):
                tree.add(node, ranking)
        return [tree.proposal() for tree in trees]

    def _run(self, blocks: list[Block], readings: list[Reading]) -> Tensor:
        """Run one head on the last state of each reading: [max(readings, 2), hidden] float32."""
        rows = [_last(reading) for reading in readings]
        x = torch.stack(rows * 2 if len(rows) == 1 else rows)
        for matrix, bias in blocks:
            x = x + silu(matrix(x.to(self._dtype)).float() + bias)
        return x


def _last(reading: Reading) -> Tensor:
    assert reading.last is not None
    return reading.last
