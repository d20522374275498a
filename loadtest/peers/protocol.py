"""What a worker and the bench say to each other: JSON lines over stdin and stdout.

A worker first sends a `Hello`, then a `Reply` for each `Question`. Standard library only: every
peer's Python imports this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Hello:
    """The peer is loaded, or `error` says why it is not."""

    version: str = ""
    error: str = ""

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> Hello:
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Question:
    """Prompts (token ids) to be answered at the same time, greedily."""

    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> Question:
        raw = json.loads(line)
        return cls(tuple(tuple(ids) for ids in raw["prompts"]), raw["max_tokens"])


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt's tokens, the end token left out; `first_s` after the question came."""

    tokens: tuple[int, ...]
    first_s: float
    rounds: tuple[int, ...] = ()
    """Tokens of each round, the end token counted; of engines that give them round by round."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """What an engine says became of its guesses; 1 + accepted ÷ steps is its τ."""

    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int

    def since(self, earlier: Drafts) -> Drafts:
        """What has come to counts that only grow."""
        return Drafts(
            self.num_steps - earlier.num_steps,
            self.num_drafted - earlier.num_drafted,
            self.num_accepted - earlier.num_accepted,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """The answers in the prompts' order, and the time in which all of them were made."""

    answers: tuple[Answer, ...] = ()
    seconds: float = 0.0
    error: str = ""
    drafts: Drafts | None = None
    """Of all answers; None from an engine that does not draft or does not say."""

    @property
    def num_tokens(self) -> int:
        return sum(len(answer.tokens) for answer in self.answers)

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> Reply:
        raw = json.loads(line)
        answers = tuple(
            Answer(tuple(each["tokens"]), each["first_s"], tuple(each["rounds"]))
            for each in raw["answers"]
        )
        drafts = Drafts(**raw["drafts"]) if raw.get("drafts") else None
        return cls(answers, raw["seconds"], raw["error"], drafts)


def together(drafts: Iterable[Drafts]) -> Drafts:
    """The sum."""
    known = [(each.num_steps, each.num_drafted, each.num_accepted) for each in drafts]
    return Drafts(*map(sum, zip(*known, strict=True))) if known else Drafts(0, 0, 0)


def without_end(tokens: Sequence[int], end_id: int) -> tuple[int, ...]:
    """The tokens before the end token: some engines report it, others do not."""
    kept = list(tokens)
    return tuple(kept[: kept.index(end_id)] if end_id in kept else kept)
