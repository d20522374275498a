"""The protocol between a worker and the bench: JSON lines over stdin and stdout.

A worker first sends a `Hello`, then a `Reply` for each `Question`. This module needs the standard
library only, since every peer's Python imports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Hello:
    """The message that the peer is loaded, or the `error` that prevented it."""

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
    """One prompt's tokens without the end token.

    `first_s` is the time from the question to the first token, in seconds.
    """

    tokens: tuple[int, ...]
    first_s: float
    rounds: tuple[int, ...] = ()
    """Tokens of each round, the end token included; empty if the engine does not report rounds."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """An engine's own counts of its draft tokens; 1 + accepted ÷ steps is its τ."""

    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int

    def since(self, earlier: Drafts) -> Drafts:
        """Return the difference to earlier counts."""
        return Drafts(
            self.num_steps - earlier.num_steps,
            self.num_drafted - earlier.num_drafted,
            self.num_accepted - earlier.num_accepted,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """The answers in the prompts' order, and the seconds in which all of them were made."""

    answers: tuple[Answer, ...] = ()
    seconds: float = 0.0
    error: str = ""
    drafts: Drafts | None = None
    """Counts over all answers; None from an engine that does not draft or does not count."""

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
    """Return the sum of several counts."""
    known = [(each.num_steps, each.num_drafted, each.num_accepted) for each in drafts]
    return Drafts(*map(sum, zip(*known, strict=True))) if known else Drafts(0, 0, 0)


def without_end(tokens: Sequence[int], end_id: int) -> tuple[int, ...]:
    """Return the tokens before the end token: some engines report it, others do not."""
    kept = list(tokens)
    return tuple(kept[: kept.index(end_id)] if end_id in kept else kept)
