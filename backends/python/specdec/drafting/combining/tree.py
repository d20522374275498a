"""Combines the drafts of several drafters in one tree (Miao et al. 2024, SpecInfer)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds


class TreeDrafter:
    """A drafter that asks its members one after another, and proposes the tree of their drafts."""

    def __init__(
        self, name: str, members: Sequence[Drafter], max_nodes: int, *, keeps_apart: bool
    ) -> None:
        """Take the members in order of preference.

        `max_nodes` is the engine's limit on draft tokens; earlier members use it up first. With
        `keeps_apart`, drafts with equal first tokens share no nodes. Verification by probabilities
        needs this, because it uses the distribution from which each token was drawn.
        """
        self._name = name
        self._members = members
        self._max_nodes = max_nodes
        self._combine = side_by_side if keeps_apart else merge

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        proposals = [member.propose(context, max_tokens) for member in self._members]
        return self._combine(
            [each for each in proposals if each.tokens], self._name, self._max_nodes
        )

    def observe(self, confirmed: Round) -> None:
        for member in self._members:
            member.observe(confirmed)


def merge(proposals: Sequence[Proposal], name: str, max_nodes: int) -> Proposal:
    """Merge the proposals in a tree: equal tokens after equal prefixes become one node.

    The tree has at most `max_nodes` nodes; earlier proposals use them up first. The source of a
    node is the first drafter that proposed it. A tree without branches is returned as a chain, for
    engines that take no trees.
    """
    tokens: list[int] = []
    parents: list[int] = []
    sources: list[int] = []
    node_of: dict[tuple[int, int], int] = {}
    for proposal in proposals:
        node = -1
        for token in proposal.tokens:
            following = node_of.get((node, token))
            if following is None:
                if len(tokens) == max_nodes:
                    break
                following = node_of[node, token] = len(tokens)
                tokens.append(token)
                parents.append(node)
                sources.append(proposal.source)
            node = following
    return _proposal(name, tokens, parents, sources, None)


def side_by_side(proposals: Sequence[Proposal], name: str, max_nodes: int) -> Proposal:
    """Combine the proposals in a tree with a branch for each, and keep the logits of the tokens.

    The tree has at most `max_nodes` nodes; earlier proposals use them up first. If no proposal has
    logits, the tree has none.
    """
    tokens: list[int] = []
    parents: list[int] = []
    sources: list[int] = []
    vocab_size = max(
        (each.logits.shape[1] for each in proposals if each.logits is not None), default=0
    )
    rows: list[npt.NDArray[np.float32]] = []
    for proposal in proposals:
        num_kept = min(len(proposal.tokens), max_nodes - len(tokens))
        parents += [-1, *range(len(tokens), len(tokens) + num_kept - 1)][:num_kept]
        tokens += proposal.tokens[:num_kept]
        sources += [proposal.source] * num_kept
        if vocab_size:
            rows.append(_logits_of(proposal, vocab_size)[:num_kept])
    return _proposal(name, tokens, parents, sources, np.concatenate(rows) if rows else None)


def _logits_of(proposal: Proposal, vocab_size: int) -> npt.NDArray[np.float32]:
    """Return the logits [tokens, vocab] of a proposal; a copied token gets probability 1."""
    if proposal.logits is not None:
        return proposal.logits
    logits = np.full((len(proposal.tokens), vocab_size), -np.inf, dtype=np.float32)
    logits[np.arange(len(proposal.tokens)), proposal.tokens] = 0.0
    return logits


def _proposal(
    name: str,
    tokens: list[int],
    parents: list[int],
    sources: list[int],
    logits: npt.NDArray[np.float32] | None,
) -> Proposal:
    if not tokens:
        return NO_PROPOSAL
    is_chain = parents == list(range(-1, len(tokens) - 1))
    return Proposal(
        tuple(tokens),
        name,
        logits=logits,
        parents=() if is_chain else tuple(parents),
        sources=tuple(sources),
    )
