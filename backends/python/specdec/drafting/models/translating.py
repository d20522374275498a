"""Cross-vocabulary drafts: drafts of a model whose tokenizer differs from the target's.

The draft model gets the context as text, encoded by its own tokenizer. Its draft is translated to
the target's tokens in one of two ways, both after Timor et al. 2025:

- By text: the draft's text is encoded by the target's tokenizer. This is string-level exact match
  (SLEM), which Hugging Face calls universal assisted generation.
- Token by token, for a draft model built to draw only tokens that both vocabularies have. This is
  token-level intersection (TLI).

The target verifies its own tokens, so a bad translation costs speed and nothing else.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from specdec.engines.protocol import Draft, DraftEngine
from specdec.token_ids import TokenIds

NUM_TAIL = 16
"""Tokens before the draft that are encoded again with it, because the tokens of a word depend on
the text before it."""

CONTEXT_STEP = 64
"""Tokens that are cut at once from the beginning of a context that is too long for the draft model.
Until the next cut the beginning stays the same, so the draft model's prefix cache is used."""

TARGET_IDS_FILE = "target_ids.npy"
"""File in the checkpoint of a draft model whose drafts are translated token by token. It holds the
target's token for each of the draft model's tokens, or -1: [draft vocabulary] int32."""


class Codec(Protocol):
    """The interface of a tokenizer for translations."""

    def text(self, ids: TokenIds) -> str:
        """Return the text of the tokens [n] int32, special tokens included."""

    def plain(self, text: str) -> TokenIds:
        """Return the tokens [n] int32 of the text.

        No special token is added, but the text of one is encoded as that token.
        """


class TranslatingDraft:
    """A `DraftEngine` in the target's tokens, made from one with another vocabulary."""

    def __init__(
        self,
        engine: DraftEngine,
        target: Codec,
        draft: Codec,
        max_context: int,
        target_ids: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Take the engine with the other vocabulary, and both tokenizers.

        `max_context` is the draft model's limit for context and draft together, in its own tokens.
        `target_ids` [draft vocabulary] is the target's token for each of the draft model's, or -1;
        None to translate by text.
        """
        self._engine = engine
        self._target = target
        self._draft = draft
        self._max_context = max_context
        self._target_ids = target_ids

    def draft(self, context: TokenIds, num_tokens: int) -> Draft:
        own = self._draft.plain(self._target.text(context))
        num_over = max(0, len(own) + num_tokens - self._max_context)
        own = own[-(-num_over // CONTEXT_STEP) * CONTEXT_STEP :]
        if not len(own):
            return Draft(())
        drafted = self._engine.draft(own, num_tokens).tokens
        translate = self._by_text if self._target_ids is None else self._by_tokens
        return Draft(translate(context, own, drafted)[:num_tokens])

    def _by_tokens(
        self, context: TokenIds, own: TokenIds, drafted: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Translate token by token, up to the first token that the target does not have."""
        del context, own
        assert self._target_ids is not None
        ids = self._target_ids[list(drafted)]
        unknown = np.flatnonzero(ids < 0)
        return tuple(ids[: unknown[0] if len(unknown) else None].tolist())

    def _by_text(
        self, context: TokenIds, own: TokenIds, drafted: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Translate the draft's text; return no tokens if the draft begins within a character."""
        tail = own[-NUM_TAIL:]
        with_draft = np.concatenate((tail, np.asarray(drafted, dtype=np.int32)))
        before, after = self._draft.text(tail), self._draft.text(with_draft)
        if not after.startswith(before):
            return ()  # The draft completes a character that began before it.
        return self._tokens_of(context, after[len(before) :])

    def _tokens_of(self, context: TokenIds, text: str) -> tuple[int, ...]:
        """Return the target's tokens for a `text` that follows the context."""
        if not text:
            return ()
        tail = context[-NUM_TAIL:]
        together = self._target.plain(self._target.text(tail) + text)
        if np.array_equal(together[: len(tail)], tail):
            return tuple(together[len(tail) :].tolist())
        return tuple(self._target.plain(text).tolist())
