"""Verification of a tree of drafts: several guesses for one place.

`parents[i]` is the node that drafted token i follows, ROOT the context. Siblings may be the same
token, guessed twice: then whatever follows either of them follows both. Targets' choices and laws
are given as [0] behind the context and [i + 1] behind node i.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec.acceptance.chance import Chance, Law
from specdec.acceptance.exact import Verdict
from specdec.acceptance.rules import acceptance_of, law_at, residual_of

ROOT = -1


def verify_tree(tokens: Sequence[int], parents: Sequence[int], choices: Sequence[int]) -> Verdict:
    """Follows the target's own choices as far as the tree goes, and adds the next of them."""
    said: list[int] = []
    nodes = [ROOT]
    while nodes:
        choice = choices[nodes[0] + 1]
        said.append(choice)
        nodes = [node for node in following(nodes, parents) if tokens[node] == choice]
    return Verdict(tuple(said), len(said) - 1)


def verify_tree_by_rejection(
    tokens: Sequence[int],
    parents: Sequence[int],
    draft_laws: Sequence[Law] | None,
    target_laws: Sequence[Law],
    chance: Chance,
) -> Verdict:
    """Guess after guess against what the rejected ones have left of the target's law.

    `draft_laws[i]` is what node i was drawn from, independently of its siblings; None where all
    were looked up. The output follows the target's law (multi-step speculative sampling,
    Miao et al. 2024, SpecInfer, algorithm 2).
    """
    said: list[int] = []
    nodes = [ROOT]
    while True:
        law = target_laws[nodes[0] + 1]
        candidates = following(nodes, parents)
        for node in candidates:
            token = tokens[node]
            draft_law = law_at(draft_laws, node, token, len(law))
            if chance.happens(acceptance_of(law[token], draft_law[token])):
                break
            law = residual_of(law, draft_law)
            law = law / law.sum()
        else:
            return Verdict((*said, chance.draw(law)), len(said))
        said.append(token)
        nodes = [node for node in candidates if tokens[node] == token]


def following(nodes: Sequence[int], parents: Sequence[int]) -> list[int]:
    """The children of `nodes`, in the order in which they were guessed."""
    return [node for node, parent in enumerate(parents) if parent in nodes]
