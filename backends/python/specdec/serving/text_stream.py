"""From confirmed tokens to text that may be sent: whole characters, nothing of a stop text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Token:
    """A confirmed token and where it came from."""

    id: int
    source: int
    """0 the target itself, n the n-th configured drafter."""
    position: int
    """Its position in its round, from 0; of an accepted draft token, its position in the draft."""
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


@dataclass(frozen=True, slots=True)
class _HeldToken:
    """A token that may be sent later, or never."""

    token: Token
    text: str
    """What it adds to the answer; empty while a character is incomplete."""
    sought: str
    """What stop texts are looked for in: `text`, or the name of a special token."""


class TextStream:
    """Releases tokens as soon as no stop text can begin in them any more."""

    def __init__(
        self,
        decode: Decode,
        stop_words: Iterable[str] = (),
        *,
        rest: Callable[[], str] = str,
        special_texts: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """Take an incremental decoder and the texts that end the answer.

        `rest` tells what the decoder still holds once the last token has come. `special_texts`:
        tokens that add nothing to the answer, and the text under which a stop text may name them.
        """
        self._decode = decode
        self._rest = rest
        self._stop_words = tuple(stop_words)
        self._ordered_words = sorted(self._stop_words)
        self._special_texts = {
            token: text
            for token, text in special_texts.items()
            if any(text in word for word in self._stop_words)
        }
        self._held: list[_HeldToken] = []
        self.stopped = False
        """A stop text was met; nothing comes after it."""

    def push(self, tokens: Iterable[Token]) -> Piece:
        """Takes confirmed tokens in order; returns what may be sent now."""
        for token in tokens:
            text = self._decode(token.id) or ""
            self._held.append(_HeldToken(token, text, self._special_texts.get(token.id, text)))
            if self._stop_words and self._find_stop():
                break
        if self.stopped or not self._stop_words:
            return self._release(len(self._held))
        return self._release(self._num_safe())

    def finish(self) -> Piece:
        """Return what is left once no more tokens come, incomplete characters included."""
        rest = "" if self.stopped else self._rest()
        if rest and self._held:
            last = self._held[-1]
            self._held[-1] = _HeldToken(last.token, last.text + rest, last.sought + rest)
            self._find_stop()
            rest = ""
        released = self._release(len(self._held))
        return Piece(released.text + self._before_stop(rest), released.tokens)

    def _before_stop(self, rest: str) -> str:
        """Return the part of the rest before a stop text, where no token is held any more."""
        found = [position for word in self._stop_words if (position := rest.find(word)) >= 0]
        self.stopped |= bool(found)
        return rest[: min(found)] if found else rest

    def _find_stop(self) -> bool:
        """Cuts the held text at the first stop text, if there is one."""
        text = "".join(each.sought for each in self._held)
        found = [position for word in self._stop_words if (position := text.find(word)) >= 0]
        if not found:
            return False
        self.stopped = True
        left = min(found)
        kept: list[_HeldToken] = []
        for each in self._held:
            if left <= 0:
                break
            kept.append(_HeldToken(each.token, each.text[:left], each.sought[:left]))
            left -= len(each.sought)
        self._held = kept
        return True

    def _num_safe(self) -> int:
        """Leading held tokens that end before any possible beginning of a stop text.

        Tokens at the end that complete no character may be the first bytes of one.
        """
        text = "".join(each.sought for each in self._held)
        longest = max(len(word) for word in self._stop_words) - 1
        start = next(
            (
                position
                for position in range(max(0, len(text) - longest), len(text))
                if self._may_begin(text[position:])
            ),
            len(text),
        )
        end = count = 0
        for index, each in enumerate(self._held):
            end += len(each.sought)
            if end > start:
                break
            if each.sought:
                count = index + 1
        return count

    def _may_begin(self, text: str) -> bool:
        """Say whether a stop text starts with `text`."""
        first = bisect_left(self._ordered_words, text)
        return any(word.startswith(text) for word in self._ordered_words[first : first + 1])

    def _release(self, count: int) -> Piece:
        released, self._held = self._held[:count], self._held[count:]
        return Piece(
            "".join(each.text for each in released), tuple(each.token for each in released)
        )
