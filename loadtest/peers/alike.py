"""Do two engines guess alike? Told from rounds that begin at the same place of the same text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from loadtest.peers.protocol import Answer


@dataclass(frozen=True, slots=True)
class Alike:
    """Of rounds that begin behind the same tokens: how many there are, and give equally many."""

    num_rounds: int
    num_equal: int

    def __str__(self) -> str:
        return f"{self.num_equal}/{self.num_rounds}"


def alike(pairs: Iterable[tuple[Answer, Answer]]) -> Alike:
    """Compare two engines' answers to the same prompts.

    Rounds are compared up to where the texts part, so that both had the same to guess.
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
    """Tokens before the first that differs."""
    pairs = enumerate(zip(one.tokens, other.tokens, strict=False))
    shorter = min(len(one.tokens), len(other.tokens))
    return next((place for place, (left, right) in pairs if left != right), shorter)


def _rounds(answer: Answer, num_same: int) -> dict[int, int]:
    """Length of each round by its first place, of those that end in the text that is the same."""
    ends = accumulate(answer.rounds)
    return {
        end - length: length
        for end, length in zip(ends, answer.rounds, strict=True)
        if end <= num_same
    }
