"""Turn confirmed tokens into text to send: whole characters, and no part of a stop word."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from specdec.token_ids import TopLogProbs


@dataclass(frozen=True, slots=True)
class Token:
    """A confirmed token and its source."""

    id: int
    source: int
    """Number of the drafter that proposed the token, from 1 in configured order; 0: the target."""
    position: int
    """Index in its round, from 0. For an accepted draft token it is also the index in the draft."""
    drafter: str | None
    """Name of the drafter that proposed the token; None for the target."""
    log_prob: float | None = None
    """Log-probability under the target; None unless the request asks for it."""
    top_log_probs: TopLogProbs = ()
    """The target's most likely tokens at this position; empty unless the request asks for them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text and tokens that are sent together."""

    text: str
    tokens: tuple[Token, ...]


Decode = Callable[[int], "str | None"]
"""Function that adds a token to an incremental decoder and returns the new text, or None while a
character is incomplete."""


@dataclass(frozen=True, slots=True)
class _HeldToken:
    """A token that is held back while it may belong to a stop word."""

    token: Token
    text: str
    """Text that the token adds to the answer; empty while a character is incomplete."""
    sought: str
    """Text in which stop words are searched: `text`, or the name of a special token."""


class TextStream:
    """The text of one answer; releases tokens as soon as no stop word can begin in them."""

    def __init__(
        self,
        decode: Decode,
        stop_words: Iterable[str] = (),
        stop_ids: Collection[int] = (),
        *,
        rest: Callable[[], str] = str,
        special_texts: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """Take an incremental decoder, and the stop words and tokens that end the answer.

        `rest` returns the text that the decoder still holds after the last token. `special_texts`
        has the names of special tokens, by token. These tokens add no text to the answer, but stop
        words may contain their names.
        """
        self._decode = decode
        self._rest = rest
        self._stop_words = tuple(stop_words)
        self._stop_ids = frozenset(stop_ids)
        self._ordered_words = sorted(self._stop_words)
        self._special_texts = {
            token: text
            for token, text in special_texts.items()
            if any(text in word for word in self._stop_words)
        }
        self._held: list[_HeldToken] = []
        self._is_at_stop_id = False
        self.stopped = False
        """Whether a stop word or token was found, so that nothing more is sent."""

    def push(self, tokens: Iterable[Token]) -> Piece:
        """Add confirmed tokens in order; return what may be sent now."""
        for token in tokens:
            if token.id in self._stop_ids:
                self.stopped = self._is_at_stop_id = True
                break
            text = self._decode(token.id) or ""
            self._held.append(_HeldToken(token, text, self._special_texts.get(token.id, text)))
            if self._stop_words and self._find_stop():
                break
        if self.stopped or not self._stop_words:
            return self._release(len(self._held))
        return self._release(self._num_safe())

    def finish(self) -> Piece:
        """Return everything still held after the last token, the decoder's rest included."""
        # A stop word cuts the text, a stop token ends it, as the end token does.
        rest = "" if self.stopped and not self._is_at_stop_id else self._rest()
        if rest and self._held:
            last = self._held[-1]
            self._held[-1] = _HeldToken(last.token, last.text + rest, last.sought + rest)
            self._find_stop()
            rest = ""
        released = self._release(len(self._held))
        return Piece(released.text + self._before_stop(rest), released.tokens)

    def _before_stop(self, rest: str) -> str:
        """Return the part of `rest` before a stop word, and set `stopped` if there is one.

        Used when no token is held.
        """
        found = [position for word in self._stop_words if (position := rest.find(word)) >= 0]
        self.stopped |= bool(found)
        return rest[: min(found)] if found else rest

    def _find_stop(self) -> bool:
        """Cut the held tokens before the first stop word and set `stopped`, if there is one.

        Return whether there is one.
        """
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
        """Return how many of the first held tokens end before any possible start of a stop word.

        Tokens at the end that complete no character stay held; they may begin a stop word too.
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
        """Say whether a stop word starts with `text`."""
        first = bisect_left(self._ordered_words, text)
        return any(word.startswith(text) for word in self._ordered_words[first : first + 1])

    def _release(self, count: int) -> Piece:
        released, self._held = self._held[:count], self._held[count:]
        return Piece(
            "".join(each.text for each in released), tuple(each.token for each in released)
        )
