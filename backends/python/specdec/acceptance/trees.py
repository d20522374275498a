"""Verification of a tree: a draft with several candidates for a position.

Node i is the draft token `tokens[i]`. `parents[i]` is the node that it follows, or ROOT if it
follows the context. Siblings may be the same token, proposed twice; the children of either then
count as children of both. Lists of the target's choices or distributions have one entry more than
the tree has nodes: [0] is for the position after the context, [i + 1] for that after node i.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec.acceptance.chance import Chance, Distribution
from specdec.acceptance.exact import Verdict
from specdec.acceptance.rules import acceptance_of, distribution_at, residual_of

ROOT = -1
"""Parent of the nodes that follow the context."""


def verify_tree(tokens: Sequence[int], parents: Sequence[int], choices: Sequence[int]) -> Verdict:
    """Accept the path that agrees with the target's choices, and add the target's next token.

    `choices` [nodes + 1] are the target's tokens after the context and after each node.
    """
    confirmed: list[int] = []
    nodes = [ROOT]
    while nodes:
        choice = choices[nodes[0] + 1]
        confirmed.append(choice)
        nodes = [node for node in children_of(nodes, parents) if tokens[node] == choice]
    return Verdict(tuple(confirmed), len(confirmed) - 1)


def verify_tree_by_rejection(
    tokens: Sequence[int],
    parents: Sequence[int],
    draft_distributions: Sequence[Distribution] | None,
    target_distributions: Sequence[Distribution],
    chance: Chance,
) -> Verdict:
    """Try the candidates for each position in turn, and accept by probability.

    After a rejection, the residual replaces the target's distribution for the next candidate.
    `draft_distributions[i]` [vocab] is the distribution from which node i was drawn, independently
    of its siblings. They are None if all tokens were copied instead of drawn.
    `target_distributions` [nodes + 1] are the target's. The tokens follow the target's distribution
    (multi-step speculative sampling; Miao et al. 2024, SpecInfer, algorithm 2).
    """
    confirmed: list[int] = []
    nodes = [ROOT]
    while True:
        target_probs = target_distributions[nodes[0] + 1]
        candidates = children_of(nodes, parents)
        for node in candidates:
            token = tokens[node]
            draft_probs = distribution_at(draft_distributions, node, token, len(target_probs))
            if chance.happens(acceptance_of(target_probs[token], draft_probs[token])):
                break
            target_probs = residual_of(target_probs, draft_probs)
            target_probs = target_probs / target_probs.sum()
        else:
            return Verdict((*confirmed, chance.draw(target_probs)), len(confirmed))
        confirmed.append(token)
        nodes = [node for node in candidates if tokens[node] == token]


def children_of(nodes: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Return the children of `nodes` in the order of the draft."""
    return [node for node, parent in enumerate(parents) if parent in nodes]
