"""Texts that an answer must never contain, in whatever tokens they could be spelt."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int32]


class Vocabulary:
    """The bytes that each token of a model adds to a text; tokens without text add none."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = tuple(texts)
        order = sorted(range(len(texts)), key=texts.__getitem__)
        self._ordered = [texts[token] for token in order]
        self._ids = np.asarray(order, dtype=np.int64)
        self._joined = b"".join(texts)
        self._ends = np.cumsum([len(text) for text in texts])
        self.containing = lru_cache(maxsize=1024)(self._containing)

    def starting_with(self, beginning: bytes) -> npt.NDArray[np.int64]:
        """Return the tokens [n] whose text starts with `beginning`, which is not empty."""
        first = bisect_left(self._ordered, beginning)
        # The first text that is greater than every one with this beginning.
        after = beginning.rstrip(b"\xff")
        last = len(self._ordered)
        if after:
            last = bisect_left(self._ordered, after[:-1] + bytes([after[-1] + 1]))
        return self._ids[first:last]

    def _containing(self, text: bytes) -> npt.NDArray[np.int64]:
        """Return the tokens [n] that hold the whole of `text`."""
        found = []
        place = self._joined.find(text)
        while place >= 0:
            token = int(np.searchsorted(self._ends, place, side="right"))
            if place + len(text) <= self._ends[token]:
                found.append(token)
                place = self._joined.find(text, int(self._ends[token]))
            else:
                place = self._joined.find(text, place + 1)
        return np.asarray(found, dtype=np.int64)


class BannedText:
    """Texts that an answer must not contain, for one vocabulary."""

    def __init__(self, texts: Sequence[bytes], vocabulary: Vocabulary) -> None:
        """`texts` are not empty."""
        self._texts = tuple(dict.fromkeys(texts))
        self._vocabulary = vocabulary
        self._longest = max(len(text) for text in texts)
        self._always = np.concatenate([vocabulary.containing(text) for text in self._texts])

    def tokens_after(self, answer: TokenIds) -> npt.NDArray[np.int64]:
        """Return the tokens [n] that would complete a banned text at the end of `answer` [m]."""
        tail = self._tail(answer)
        completing = [
            self._vocabulary.starting_with(text[length:])
            for text in self._texts
            for length in range(1, min(len(text), len(tail) + 1))
            if tail.endswith(text[:length])
        ]
        return np.concatenate([self._always, *completing])

    def _tail(self, answer: TokenIds) -> bytes:
        """Return the answer's last bytes, in which a banned text may have begun."""
        pieces: list[bytes] = []
        num_left = self._longest - 1
        for token in reversed(answer.tolist()):
            if num_left <= 0:
                break
            pieces.append(self._vocabulary.texts[token])
            num_left -= len(pieces[-1])
        return b"".join(reversed(pieces))
