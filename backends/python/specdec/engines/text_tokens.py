"""Makes tokens from the text of an engine that returns no tokens, with our tokenizer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from specdec.errors import EngineFailedError

Cut = Callable[[str], list[tuple[int, str]]]
"""Splits a text into pairs (token, its part of the text); the parts joined are the text."""

UNFINISHED = "\ufffd"
"""The character that a decoder returns for bytes that are no complete character yet."""


class TextTokens:
    """The growing text of an answer, cut into tokens.

    The tokens need not be those that the engine drew, and their number may differ. Their text is
    exactly the engine's. There are at most `max_tokens`; if the text needs more, the last token
    gets the rest of the text.
    """

    def __init__(self, cut: Cut, max_tokens: int) -> None:
        self._cut = cut
        self._num_left = max_tokens
        self._text = ""
        """Text of the answer so far."""
        self._num_given = 0
        """Number of characters of `_text` for which tokens were returned."""
        self._parts: deque[str] = deque()
        """Texts of returned tokens that `next_text` has not returned yet."""

    def add(self, text: str, *, is_last: bool) -> tuple[int, ...]:
        """Return the new tokens of `text`, which is the whole answer so far.

        Set `is_last` for the complete answer. Raise EngineFailedError if `text` does not begin with
        the text of the call before.
        """
        if not is_last:
            text = text.rstrip(UNFINISHED)
        if not text.startswith(self._text):
            raise EngineFailedError("the engine has taken back text that was streamed")
        self._text = text
        # Keep one token for the end: it must take all text that may still come.
        num_free = self._num_left - (not is_last)
        pairs = self._cut(text[self._num_given :]) if num_free > 0 else []
        if len(pairs) > num_free:
            rest = "".join(part for _, part in pairs[num_free - 1 :])
            pairs = [*pairs[: num_free - 1], (pairs[num_free - 1][0], rest)]
        self._num_given += sum(len(part) for _, part in pairs)
        self._num_left -= len(pairs)
        self._parts.extend(part for _, part in pairs)
        return tuple(token for token, _ in pairs)

    def next_text(self) -> str:
        """Take the text of the next token from `add`; call it once for each token, in order."""
        return self._parts.popleft()
