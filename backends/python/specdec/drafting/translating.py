"""A draft whose tokenizer is not the target's: the two meet in text.

String-level exact match (Timor et al. 2025, SLEM; Hugging Face's universal assisted generation):
the context goes to the draft as text, and what the draft says comes back as the target's tokens.
Verification compares the target's own tokens, so a bad translation costs speed and nothing else.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from specdec.engines.protocol import Draft, DraftEngine, TokenIds

NUM_TAIL = 16
"""Tokens before the new text that are encoded again with it: where words are cut depends on what
stands before them."""


class Codec(Protocol):
    """A vocabulary."""

    def text(self, ids: TokenIds) -> str:
        """The tokens' text, special tokens included."""

    def plain(self, text: str) -> TokenIds:
        """[n] int32: the text's tokens; special tokens where their text stands."""


class TranslatingDraft:
    """A DraftEngine that speaks the target's tokens, over one that does not."""

    def __init__(self, engine: DraftEngine, target: Codec, draft: Codec) -> None:
        self._engine = engine
        self._target = target
        self._draft = draft

    def draft(self, context: TokenIds, num_tokens: int) -> Draft:
        own = self._draft.plain(self._target.text(context))
        if not len(own):
            return Draft(())
        guess = self._engine.draft(own, num_tokens)
        said = np.concatenate((own[-NUM_TAIL:], np.asarray(guess.tokens, dtype=np.int32)))
        before, after = self._draft.text(own[-NUM_TAIL:]), self._draft.text(said)
        if not after.startswith(before):
            return Draft(())  # The new tokens complete a character that had begun before them.
        return Draft(self._tokens_of(context, after[len(before) :])[:num_tokens])

    def _tokens_of(self, context: TokenIds, text: str) -> tuple[int, ...]:
        """`text` in the target's tokens, as it goes on behind the context."""
        if not text:
            return ()
        tail = context[-NUM_TAIL:]
        together = self._target.plain(self._target.text(tail) + text)
        if np.array_equal(together[: len(tail)], tail):
            return tuple(together[len(tail) :].tolist())
        return tuple(self._target.plain(text).tolist())
