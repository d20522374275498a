"""The protocol between a worker and the bench: JSON lines over stdin and stdout.

A worker first sends a `Hello`, then a `Reply` for each `Question`. This module needs the standard
library only, since every peer's Python imports it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class PeerError(Exception):
    """A peer could not be installed, started or asked; the message is the note in its row."""


@dataclass(frozen=True, slots=True)
class Message:
    """A line of the protocol: the fields of a dataclass as JSON."""

    def line(self) -> str:
        """Return the line that `parse` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read a line that `line` returned."""
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class WorkerSettings(Message):
    """The one argument of a worker; paths are in the form that the peer reads, `head` may be ""."""

    mode: str
    target: str
    draft: str
    head: str
    end_id: int
    num_threads: int


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """The message that the peer is loaded, or the `error` that prevented it."""

    version: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Question(Message):
    """Prompts (token ids) to be answered at the same time, greedily."""

    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int

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


@dataclass(frozen=True, slots=True)
class Reply(Message):
    """The answers in the prompts' order, and the seconds in which all of them were made."""

    answers: tuple[Answer, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def num_tokens(self) -> int:
        """Tokens of all answers together."""
        return sum(len(answer.tokens) for answer in self.answers)

    @classmethod
    def parse(cls, line: str) -> Reply:
        raw = json.loads(line)
        answers = tuple(Answer(tuple(each["tokens"]), each["first_s"]) for each in raw["answers"])
        return cls(answers, raw["seconds"], raw["error"])


def without_end(tokens: Sequence[int], end_id: int) -> tuple[int, ...]:
    """Return the tokens before the end token: some engines report it, others do not."""
    kept = list(tokens)
    return tuple(kept[: kept.index(end_id)] if end_id in kept else kept)
