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
    from llguidance import LLMatcher, LLTokenizer


@dataclass(frozen=True, slots=True, eq=False)
class GuidedVocabulary:
    """The tokens of a model that are no text."""

    size: int
    """Number of columns of the model's logits."""
    end_ids: tuple[int, ...]
    special_ids: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: LLTokenizer) -> GuidedVocabulary:
        """Return the vocabulary of a tokenizer."""
        size = tokenizer.vocab_size
        special_ids = tuple(each for each in range(size) if tokenizer.is_special_token(each))
        return cls(size, tuple(tokenizer.eos_tokens), special_ids)


@dataclass(frozen=True, slots=True, eq=False)
class NextTokens:
    """The tokens that may come next."""

    forbidden: npt.NDArray[np.bool_]
    """[vocab]: whether each token is forbidden. End tokens always are; see `may_end`."""
    may_end: bool
    """Whether the answer may end here."""


class Constraint:
    """A guide, compiled for a vocabulary, at some position of one answer.

    It can be asked about any tokens of an answer, in any order. It is fast if they share a long
    beginning with those of the last call, because the matcher only goes back to where they differ.
    Used by one thread at a time.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: GuidedVocabulary) -> None:
        """Take a matcher at the beginning of an answer."""
        self._matcher = matcher
        self.end_ids = list(vocabulary.end_ids)
        """The model's end tokens."""
        self._never = [*vocabulary.end_ids, *vocabulary.special_ids]
        self._bits = np.zeros(-(-vocabulary.size // 32), dtype=np.uint32)
        self._vocab_size = vocabulary.size
        self._taken: TokenIds = np.zeros(64, dtype=np.int32)
        """A buffer whose first `_num_taken` tokens the matcher has taken."""
        self._num_taken = 0

    @property
    def has_failed(self) -> bool:
        """Whether the guide was too complex; the constraint is of no use any more."""
        return self._matcher.is_error()

    def after(self, answer: TokenIds) -> NextTokens | None:
        """Return which tokens may follow `answer` [n] int32; None if the guide forbids `answer`.

        Raises InvalidRequestError if the guide has become too complex to follow.
        """
        if not self._move(answer):
            return None
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: self._vocab_size]
        forbidden = bits == 0
        forbidden[self._never] = True
        return NextTokens(forbidden, self._matcher.is_accepting())

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
                "guided_decoding_guide is too complex to follow: "
                f"{in_one_line(self._matcher.get_error())}"
            )


MAX_MESSAGE_LENGTH = 300
"""Most characters of a message of llguidance; after that, it describes its state."""


def in_one_line(message: str) -> str:
    """Return a message of llguidance in one line."""
    return " ".join(message.split())[:MAX_MESSAGE_LENGTH]
