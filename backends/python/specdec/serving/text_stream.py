"""From confirmed tokens to text that may be sent: whole characters, nothing of a stop text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token:
    """A confirmed token and where it came from."""

    id: int
    source: int
    """0 the target itself, n the n-th configured drafter."""
    position: int
    """Its place in its round, from 0; of an accepted draft token, its place in the draft."""
    drafter: str | None
    """The name behind `source`; None for the target itself."""
    log_prob: float | None = None
    """The target's, where the request wants it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text and tokens released together."""

    text: str
    tokens: tuple[Token, ...]


Decode = Callable[[int], "str | None"]
"""Adds one token to an incremental decoder; None while a character is incomplete."""


class TextStream:
    """Releases tokens as soon as no stop text can begin in them any more."""

    def __init__(self, decode: Decode, stop_words: Iterable[str] = ()) -> None:
        self._decode = decode
        self._stop_words = tuple(stop_words)
        self._held: list[tuple[Token, str]] = []
        self.stopped = False
        """A stop text was met; nothing comes after it."""

    def push(self, tokens: Iterable[Token]) -> Piece:
        """Takes confirmed tokens in order; returns what may be sent now."""
        for token in tokens:
            self._held.append((token, self._decode(token.id) or ""))
            if self._stop_words and self._find_stop():
                break
        if self.stopped or not self._stop_words:
            return self._release(len(self._held))
        return self._release(self._num_safe())

    def finish(self) -> Piece:
        """The rest: no more tokens come, so no stop text can complete."""
        return self._release(len(self._held))

    def _find_stop(self) -> bool:
        """Cuts the held text at the first stop text, if there is one."""
        text = "".join(piece for _, piece in self._held)
        found = [place for word in self._stop_words if (place := text.find(word)) >= 0]
        if not found:
            return False
        self.stopped = True
        left = min(found)
        kept: list[tuple[Token, str]] = []
        for token, piece in self._held:
            if left <= 0:
                break
            kept.append((token, piece[:left]))
            left -= len(piece)
        self._held = kept
        return True

    def _num_safe(self) -> int:
        """Leading held tokens that end before any possible beginning of a stop text.

        Tokens at the end that complete no character may be the first bytes of one.
        """
        text = "".join(piece for _, piece in self._held)
        longest = max(len(word) for word in self._stop_words) - 1
        start = next(
            (
                place
                for place in range(max(0, len(text) - longest), len(text))
                if any(word.startswith(text[place:]) for word in self._stop_words)
            ),
            len(text),
        )
        end = count = 0
        for index, (_, piece) in enumerate(self._held):
            end += len(piece)
            if end > start:
                break
            if piece:
                count = index + 1
        return count

    def _release(self, count: int) -> Piece:
        released, self._held = self._held[:count], self._held[count:]
        return Piece("".join(piece for _, piece in released), tuple(token for token, _ in released))
