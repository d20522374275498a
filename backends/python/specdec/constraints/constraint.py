"""Which tokens may follow the tokens of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specdec.errors import InvalidRequestError
from specdec.token_ids import TokenIds

if TYPE_CHECKING:
    from llguidance import LLMatcher


@dataclass(frozen=True, slots=True, eq=False)
class Allowed:
    """The tokens that may come next."""

    forbidden: npt.NDArray[np.bool_]
    """[vocab]: whether each token is forbidden. End tokens are, because `may_end` tells of them."""
    may_end: bool
    """Whether the answer may end here."""


class Constraint:
    """A guide, compiled for a vocabulary, at some position of one answer.

    It can be asked about any tokens of an answer, in any order. It is fast if they differ little
    from the last ones, because it goes back over tokens that were rejected, and then on. Used by
    one thread at a time.
    """

    def __init__(self, matcher: LLMatcher, vocab_size: int, end_ids: Sequence[int]) -> None:
        """Take a matcher at the beginning of an answer, and the model's end tokens."""
        self._matcher = matcher
        self.end_ids = list(end_ids)
        """The model's end tokens."""
        self._bits = np.zeros(-(-vocab_size // 32), dtype=np.uint32)
        self._vocab_size = vocab_size
        self._taken: TokenIds = np.zeros(64, dtype=np.int32)
        """A buffer whose first `_num_taken` tokens the matcher has taken."""
        self._num_taken = 0

    def after(self, answer: TokenIds) -> Allowed | None:
        """Return which tokens may follow `answer` [n] int32; None if the guide forbids `answer`.

        Raises InvalidRequestError if the guide has become too complex to follow.
        """
        if not self._move(answer):
            return None
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: self._vocab_size]
        forbidden = bits == 0
        forbidden[self.end_ids] = True
        return Allowed(forbidden, self._matcher.is_accepting())

    def num_allowed(self, answer: TokenIds, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` may follow `answer` [n] int32, one after another."""
        return self._matcher.validate_tokens(list(tokens)) if self._move(answer) else 0

    def forced(self, answer: TokenIds) -> list[int]:
        """Return the tokens that must follow `answer` [n] int32, in the tokenizer's spelling.

        The guide fixes the text, not the tokens, so a model may spell the text in other tokens.
        """
        return self._matcher.compute_ff_tokens() if self._move(answer) else []

    def _move(self, answer: TokenIds) -> bool:
        """Take the matcher to the end of `answer`; return False if it cannot get there."""
        num_taken = self._num_taken
        size = min(num_taken, len(answer))
        differing = np.flatnonzero(self._taken[:size] != answer[:size])
        num_same = int(differing[0]) if len(differing) else size
        if num_taken > num_same:
            self._matcher.rollback(num_taken - num_same)
        more = self._matcher.try_consume_tokens(answer[num_same:].tolist())
        self._check()
        self._num_taken = num_same + more
        if self._num_taken > len(self._taken):
            self._taken = np.concatenate((self._taken, np.zeros_like(answer)))
        self._taken[num_same : self._num_taken] = answer[num_same : self._num_taken]
        return self._num_taken == len(answer)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidRequestError(
                f"the guide cannot be followed: {in_one_line(self._matcher.get_error())}"
            )


MAX_MESSAGE_LENGTH = 300
"""Most characters of a message of llguidance; after that, it describes its state."""


def in_one_line(message: str) -> str:
    """Return a message of llguidance in one line."""
    return " ".join(message.split())[:MAX_MESSAGE_LENGTH]
