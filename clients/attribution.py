"""Attribution of an answer's text to the target and its drafters.

The server sends the source of each *token*, but text only for each chunk. With the target's
tokenizer the text is split by token. Without it the text of a chunk stays one piece, with the
number of its tokens that were drafted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specdec.clients.response import Chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text, and the sources of its tokens.

    `source` is 0 for the target, n for the n-th drafter, and None for several sources.
    `num_drafted` of the `num_tokens` tokens came from drafters.
    """

    text: str
    source: int | None
    num_tokens: int
    num_drafted: int


class Attribution(Protocol):
    """A splitter of the chunks of one answer into pieces; each answer needs a new one."""

    def pieces(self, chunk: Chunk) -> Iterator[Piece]:
        """Yield the pieces of the chunk's text in order; joined they are the text."""


Decode = Callable[[int], "str | None"]
"""Function that takes one token and returns the characters that it completes, or None."""


class ChunkAttribution:
    """Attribution by chunk: one piece for each chunk that has text."""

    def __init__(self) -> None:
        # Sources of tokens without text so far, such as half a character: the next text has them.
        self._waiting: list[int] = []

    def pieces(self, chunk: Chunk) -> Iterator[Piece]:
        """Yield the chunk's text as one piece, with all tokens since the last text."""
        self._waiting.extend(chunk.sources)
        if chunk.text:
            yield _piece(chunk.text, self._waiting)
            self._waiting = []


class TokenAttribution:
    """Attribution by token: one piece for each run of tokens from the same source.

    It decodes the tokens itself. If its text differs from the server's, it attributes the rest of
    the answer by chunk and sets `is_by_token` to false. Reasons are another tokenizer, or a
    character that max_tokens cut off.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._by_chunk = ChunkAttribution()
        # Sources of tokens that have not completed a character yet.
        self._waiting: list[int] = []
        # Characters that the server has not sent yet, because it may hold text back.
        self._ahead: deque[tuple[str, Piece]] = deque()
        self.is_by_token = True

    def pieces(self, chunk: Chunk) -> Iterator[Piece]:
        """Yield the chunk's text, split where the source changes."""
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
