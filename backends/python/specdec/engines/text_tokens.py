"""Tokens for an engine that speaks text: its text cut by the tokenizer that we have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from specdec.errors import EngineFailedError

Cut = Callable[[str], list[tuple[int, str]]]
"""Text → (token, its part of the text), which joined are the text."""

UNFINISHED = "\ufffd"
"""What a decoder puts for bytes that are no character yet."""


class TextTokens:
    """Takes all that an engine has said so far, again and again; gives what is new in tokens.

    The tokens need not be those that the engine drew, and may be one more or less; the text is the
    engine's to the letter. At most `max_tokens` are given: should the text take more, the last one
    stands for the rest.
    """

    def __init__(self, cut: Cut, max_tokens: int) -> None:
        self._cut = cut
        self._num_left = max_tokens
        self._text = ""
        """As far as it has come."""
        self._num_given = 0
        """Characters of it."""
        self._parts: deque[str] = deque()

    def add(self, text: str, *, is_last: bool) -> tuple[int, ...]:
        """`text`: from the beginning. Raises EngineFailedError if it was another before."""
        if not is_last:
            text = text.rstrip(UNFINISHED)
        if not text.startswith(self._text):
            raise EngineFailedError("the engine has taken back text that was streamed")
        self._text = text
        # The last place is kept for the end: nobody knows how much text is still to come.
        num_free = self._num_left - (not is_last)
        pairs = self._cut(text[self._num_given :]) if num_free > 0 else []
        if len(pairs) > num_free:
            rest = "".join(part for _, part in pairs[num_free - 1 :])
            pairs = [*pairs[: num_free - 1], (pairs[num_free - 1][0], rest)]
        self._num_given += sum(len(part) for _, part in pairs)
        self._num_left -= len(pairs)
        self._parts.extend(part for _, part in pairs)
        return tuple(token for token, _ in pairs)

    def text_of(self, token: int) -> str:
        """The text of the next token, in the order in which they were given."""
        del token
        return self._parts.popleft()
