"""A draft tree that grows depth by depth and keeps its likeliest nodes.

It follows EAGLE-2 (Li et al. 2024, arXiv 2406.16858). The probability of a node is the product of
the head's probabilities on its path. Each depth grows from the likeliest nodes of the previous one.
In the end the likeliest of all nodes are kept. If the head's probabilities do not depend on the
path, this is the sparse tree of Medusa (Cai et al. 2024, arXiv 2401.10774), chosen for each round.
"""

from __future__ import annotations

from specdec.acceptance.sampling import Draw
from specdec.acceptance.trees import ROOT
from specdec.torch_engine.heads.interface import HeadProposal, Reading
from specdec.torch_engine.sampler import Ranking

NUM_BRANCHES = 8
"""Largest number of children of a node, and of nodes of one depth that get children."""


class GrowingTree:
    """The draft tree of one reading; nodes are numbered as they are added, parents first."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._log_probs: list[float] = []
        """The log-probability of the whole path to each node."""
        self._depth = 0
        self._first_newest = 0
        """The first node of the newest depth."""

    def deepen(self) -> list[int]:
        """Go one depth deeper; return the nodes that get children now, the likeliest first.

        Returns no nodes once the tree is complete.
        """
        if self._depth == self.reading.depth:
            return []
        self._depth += 1
        newest, self._first_newest = self._first_newest, len(self.tokens)
        if self._depth == 1:
            return [ROOT]
        # A child is never likelier than its parent, so only the best nodes so far need children.
        going = [node for node in self._best() if node >= newest]
        return going[:NUM_BRANCHES]

    def add(self, parent: int, ranking: Ranking) -> None:
        """Add children to the node `parent`, one for each token of `ranking` except the end token.

        The end token is never proposed, so nothing follows it.
        """
        before = 0.0 if parent == ROOT else self._log_probs[parent]
        for token, log_prob in ranking:
            if token != self.reading.task.end_id:
                self.tokens.append(token)
                self.parents.append(parent)
                self._log_probs.append(before + log_prob)

    def draw(self, node: int) -> Draw:
        """Return the draw of the token that follows a node."""
        path = []
        while node != ROOT:
            path.append(self.tokens[node])
            node = self.parents[node]
        return self.reading.draw(path[::-1])

    def proposal(self) -> HeadProposal:
        """Return the likeliest nodes as a proposal; without parents if they form a chain."""
        kept = sorted(self._best())
        number_of = {node: number for number, node in enumerate(kept)} | {ROOT: ROOT}
        parents = tuple(number_of[self.parents[node]] for node in kept)
        is_chain = parents == tuple(range(-1, len(kept) - 1))
        return HeadProposal(tuple(self.tokens[node] for node in kept), () if is_chain else parents)

    def _best(self) -> list[int]:
        """Return the `num_draft_tokens` likeliest nodes, the likeliest first.

        Among equally likely nodes the older one comes first, so a parent comes before its child.
        """
        order = sorted(range(len(self.tokens)), key=lambda node: -self._log_probs[node])
        return order[: self.reading.num_draft_tokens]
