"""Which part of an answer's text came from whom, as far as it is known.

The server says who proposed each *token*; text comes per chunk. With the target's tokenizer at
hand the text is split by token. Without it a chunk is the smallest piece that can be told apart,
and a piece of mixed origin says how many of its tokens were drafted: nothing is guessed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clients.response import Chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """Text whose tokens are known: `source` is None when they came from more than one."""

    text: str
    source: int | None
    num_tokens: int
    num_drafted: int


class Attribution(Protocol):
    """Splits the chunks of one answer; made anew for each answer."""

    def pieces(self, chunk: Chunk) -> Iterator[Piece]:
        """Give the chunk's text in pieces; joined they are the chunk's text."""


Decode = Callable[[int], "str | None"]
"""Takes one token and gives the whole characters that it completes, or None."""


class ChunkAttribution:
    """One piece per chunk that has text."""

    def __init__(self) -> None:
        # A chunk may bring tokens and no text yet (half a character): they belong to the next text.
        self._waiting: list[int] = []

    def pieces(self, chunk: Chunk) -> Iterator[Piece]:
        """Give the chunk's text as one piece with the tokens that came since the last text."""
        self._waiting.extend(chunk.sources)
        if chunk.text:
            yield _piece(chunk.text, self._waiting)
            self._waiting = []


class TokenAttribution:
    """One piece per run of tokens from the same source, by decoding the token ids here.

    If the local text ever differs from the server's (another tokenizer, a character cut off by
    max_tokens), the rest of the answer is attributed by chunk, and `is_by_token` turns false.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._by_chunk = ChunkAttribution()
        # Of tokens that have not completed a character yet.
        self._waiting: list[int] = []
        # Decoded here, not yet sent by the server, which may hold text back.
        self._ahead: deque[tuple[str, Piece]] = deque()
        self.is_by_token = True

    def pieces(self, chunk: Chunk) -> Iterator[Piece]:
        """Give the chunk's text split by source."""
        if not self.is_by_token:
            yield from self._by_chunk.pieces(chunk)
            return
        for token_id, source in zip(chunk.token_ids, chunk.sources, strict=True):
            self._add(token_id, source)
        num_characters = len(chunk.text)
        known = "".join(character for character, _ in self._ahead)[:num_characters]
        if known != chunk.text:
            self.is_by_token = False
            yield from self._by_chunk.pieces(chunk)
            return
        taken = [self._ahead.popleft() for _ in range(num_characters)]
        for _, run in groupby(taken, key=lambda pair: pair[1].source):
            characters, origins = zip(*run, strict=True)
            tokens = {id(origin): origin for origin in origins}.values()
            yield Piece(
                text="".join(characters),
                source=origins[0].source,
                num_tokens=sum(token.num_tokens for token in tokens),
                num_drafted=sum(token.num_drafted for token in tokens),
            )

    def _add(self, token_id: int, source: int) -> None:
        self._waiting.append(source)
        text = self._decode(token_id)
        if text:
            origin = _piece(text, self._waiting)
            self._ahead.extend((character, origin) for character in text)
            self._waiting = []


def _piece(text: str, sources: list[int]) -> Piece:
    return Piece(
        text=text,
        source=sources[0] if len(set(sources)) == 1 else None,
        num_tokens=len(sources),
        num_drafted=sum(source > 0 for source in sources),
    )
