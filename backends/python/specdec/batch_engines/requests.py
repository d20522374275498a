"""The requests of an engine, as its steps show them to our drafters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request that the engine runs for the first time."""

    step_id: str
    """The id by which the engine's steps name it."""
    prompt: Sequence[int]
    max_tokens: int
    min_tokens: int
    end_ids: frozenset[int]
    """Tokens that end the answer."""
    options: Mapping[str, Any]
    """The request's id under `id`, and its drafting options."""


@dataclass(slots=True)
class Running:
    """A running request."""

    request: NewRequest
    request_id: str
    task: str
    num_after_prompt: int | None
    """Draft tokens of the engine's own drafter that it can use after its prompt; None if none."""
    num_tokens: int = 0
    """Confirmed tokens, without the end token."""
    has_ended: bool = False

    @property
    def is_reading(self) -> bool:
        """Whether the engine still reads the prompt."""
        return not (self.num_tokens or self.has_ended)

    @property
    def is_complete(self) -> bool:
        return self.has_ended or self.num_tokens >= self.request.max_tokens

    def confirm(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], bool]:
        """Return the tokens up to the answer's end without the end token, and whether it came."""
        request = self.request
        kept = tuple(tokens[: request.max_tokens - self.num_tokens])
        for index, token in enumerate(kept):
            if token in request.end_ids and self.num_tokens + index >= request.min_tokens:
                kept, self.has_ended = kept[:index], True
                break
        self.num_tokens += len(kept)
        return kept, self.has_ended
