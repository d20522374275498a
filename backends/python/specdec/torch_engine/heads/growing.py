"""A tree of guesses that grows depth by depth and keeps its likeliest nodes.

After EAGLE-2 (Li et al. 2024, arXiv 2406.16858): a node is as likely as the product of the head's
probabilities on its path. Each depth grows behind the likeliest nodes of the last, and of all that
have grown the likeliest are kept. Where the head's probabilities do not depend on the path this is
the sparse tree of Medusa (Cai et al. 2024, arXiv 2401.10774), chosen anew for each text.
"""

from __future__ import annotations

from specdec.acceptance.sampling import Draw
from specdec.acceptance.trees import ROOT
from specdec.torch_engine.heads.reading import Guesses, Reading
from specdec.torch_engine.sampler import Ranking

NUM_BRANCHES = 8
"""Nodes of a depth that are guessed behind, and guesses behind each."""


class GrowingTree:
    """The guesses behind one reading; nodes are numbered as they grow, parents first."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._log_probs: list[float] = []
        """Of the whole path to each node."""
        self._depth = 0
        self._first_newest = 0

    def deepen(self) -> list[int]:
        """The nodes to guess behind now, the likeliest first; none where the tree is complete."""
        if self._depth == self.reading.depth:
            return []
        self._depth += 1
        newest, self._first_newest = self._first_newest, len(self.tokens)
        if self._depth == 1:
            return [ROOT]
        # Behind a node that is not among the best so far nothing can be: it is likelier.
        going = [node for node in self._best() if node >= newest]
        return going[:NUM_BRANCHES]

    def add(self, parent: int, ranking: Ranking) -> None:
        """Guesses behind a node; nothing is guessed behind the end, which is not offered either."""
        before = 0.0 if parent == ROOT else self._log_probs[parent]
        for token, log_prob in ranking:
            if token != self.reading.task.end_id:
                self.tokens.append(token)
                self.parents.append(parent)
                self._log_probs.append(before + log_prob)

    def draw(self, node: int) -> Draw:
        """How the token behind a node is drawn."""
        path = []
        while node != ROOT:
            path.append(self.tokens[node])
            node = self.parents[node]
        return self.reading.draw(path[::-1])

    def guesses(self) -> Guesses:
        """The likeliest nodes; without parents where they are a chain."""
        kept = sorted(self._best())
        place_of = {node: place for place, node in enumerate(kept)} | {ROOT: ROOT}
        parents = tuple(place_of[self.parents[node]] for node in kept)
        is_chain = parents == tuple(range(-1, len(kept) - 1))
        return Guesses(tuple(self.tokens[node] for node in kept), () if is_chain else parents)

    def _best(self) -> list[int]:
        """The likeliest first; of equals the one that grew first, so a parent before its child."""
        order = sorted(range(len(self.tokens)), key=lambda node: -self._log_probs[node])
        return order[: self.reading.num_guesses]
