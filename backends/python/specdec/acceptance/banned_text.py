"""Bans texts from an answer, whichever tokens spell them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from specdec.token_ids import TokenIds


class Vocabulary:
    """The bytes that each token of a model adds to a text.

    `texts` holds them by token id. Tokens without text, such as special ones, have b"".
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = tuple(texts)
        order = sorted(range(len(texts)), key=texts.__getitem__)
        self._ordered = [texts[token] for token in order]
        self._ids = np.asarray(order, dtype=np.int64)
        self._joined = np.frombuffer(b"".join(texts), dtype=np.uint8)
        self._ends = np.cumsum([len(text) for text in texts])
        self.containing = lru_cache(maxsize=1024)(self._containing)

    def starting_with(self, beginning: bytes) -> npt.NDArray[np.int64]:
        """Return the tokens [n] int64 whose text starts with `beginning`, which is not empty."""
        first = bisect_left(self._ordered, beginning)
        # The range ends at the first text that is greater than all texts with this beginning.
        after = beginning.rstrip(b"\xff")
        last = len(self._ordered)
        if after:
            last = bisect_left(self._ordered, after[:-1] + bytes([after[-1] + 1]))
        return self._ids[first:last]

    def _containing(self, text: bytes) -> npt.NDArray[np.int64]:
        """Return the tokens [n] int64 whose text contains `text`, which is not empty."""
        num_starts = max(0, len(self._joined) - len(text) + 1)
        starts = np.flatnonzero(self._joined[:num_starts] == text[0])
        for offset in range(1, len(text)):
            starts = starts[self._joined[starts + offset] == text[offset]]
        tokens = np.searchsorted(self._ends, starts, side="right")
        is_whole = starts + len(text) <= self._ends[tokens]
        found: npt.NDArray[np.int64] = np.unique(tokens[is_whole]).astype(np.int64)
        return found


class BannedText:
    """The texts that an answer must not contain, for one vocabulary."""

    def __init__(self, texts: Sequence[bytes], vocabulary: Vocabulary) -> None:
        """Take at least one text; none of them is empty."""
        unique = tuple(dict.fromkeys(texts))
        self._vocabulary = vocabulary
        self._longest = max(len(text) for text in texts)
        self._always = np.unique(np.concatenate([vocabulary.containing(t) for t in unique]))
        self._ordered = sorted(unique)

    def tokens_after(self, answer: TokenIds) -> npt.NDArray[np.int64]:
        """Return the tokens that would complete a banned text after `answer`.

        `answer` [m] int32 holds the answer's tokens without the prompt. The result is [n] int64 and
        may hold a token twice.
        """
        tail = self._tail(answer)
        completing = [
            self._vocabulary.starting_with(rest)
            for length in range(1, min(self._longest, len(tail) + 1))
            for rest in self._rests_after(tail[-length:])
        ]
        return np.concatenate([self._always, *completing])

    def _rests_after(self, beginning: bytes) -> Iterator[bytes]:
        """Yield the rest of each longer banned text that starts with `beginning`."""
        for text in self._ordered[bisect_left(self._ordered, beginning) :]:
            if not text.startswith(beginning):
                return
            if len(text) > len(beginning):
                yield text[len(beginning) :]

    def _tail(self, answer: TokenIds) -> bytes:
        """Return the last bytes of the answer, in which a banned text may have begun."""
        pieces: list[bytes] = []
        num_left = self._longest - 1
        for token in reversed(answer.tolist()):
            if num_left <= 0:
                break
            pieces.append(self._vocabulary.texts[token])
            num_left -= len(pieces[-1])
        return b"".join(reversed(pieces))
