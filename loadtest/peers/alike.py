"""Compare the drafts of two engines, by rounds that begin at the same position of the same text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from loadtest.peers.protocol import Answer


@dataclass(frozen=True, slots=True)
class Alike:
    """Rounds of two engines after the same tokens, and those that gave equally many tokens."""

    num_rounds: int
    num_equal: int

    def __str__(self) -> str:
        return f"{self.num_equal}/{self.num_rounds}"


def alike(pairs: Iterable[tuple[Answer, Answer]]) -> Alike:
    """Compare two engines' answers to the same prompts.

    Only rounds that end before the first different token count, so that both engines had the same
    text to draft for.
    """
    shared = equal = 0
    for one, other in pairs:
        same = _num_same(one, other)
        rounds, others = _rounds(one, same), _rounds(other, same)
        common = rounds.keys() & others.keys()
        shared += len(common)
        equal += sum(rounds[start] == others[start] for start in common)
    return Alike(shared, equal)


def _num_same(one: Answer, other: Answer) -> int:
    """Return how many tokens precede the first one that differs."""
    pairs = enumerate(zip(one.tokens, other.tokens, strict=False))
    shorter = min(len(one.tokens), len(other.tokens))
    return next((place for place, (left, right) in pairs if left != right), shorter)


def _rounds(answer: Answer, num_same: int) -> dict[int, int]:
    """Return the number of tokens of each round by the position of its first token.

    Rounds that end after the first `num_same` tokens are left out.
    """
    ends = accumulate(answer.rounds)
    return {
        end - length: length
        for end, length in zip(ends, answer.rounds, strict=True)
        if end <= num_same
    }
