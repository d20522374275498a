"""A draft whose tokenizer is not the target's.

The context goes to it as text. What it says comes back by text, cut into the target's tokens anew
(string-level exact match, SLEM; Hugging Face's universal assisted generation), or token by token,
where it was built to say only tokens that both know (token-level intersection, TLI); both after
Timor et al. 2025. Verification compares the target's own tokens, so a bad translation costs speed
and nothing else.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from specdec.engines.protocol import Draft, DraftEngine, TokenIds

NUM_TAIL = 16
"""Tokens before the new text that are encoded again with it: where words are cut depends on what
stands before them."""

CONTEXT_STEP = 64
"""Tokens by which a context moves on that is too long for the draft: in between, its beginning
stays the same and so does what the draft has cached of it."""

TARGET_IDS_FILE = "target_ids.npy"
"""In the checkpoint of a draft that is met token by token: int32 [its vocabulary], the target's
token or -1."""


class Codec(Protocol):
    """A vocabulary."""

    def text(self, ids: TokenIds) -> str:
        """The tokens' text, special tokens included."""

    def plain(self, text: str) -> TokenIds:
        """[n] int32: the text's tokens; special tokens where their text stands."""


class TranslatingDraft:
    """A DraftEngine that speaks the target's tokens, over one that does not."""

    def __init__(
        self,
        engine: DraftEngine,
        target: Codec,
        draft: Codec,
        max_context: int,
        target_ids: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """`max_context`: tokens that the draft can read and write together.

        `target_ids`: the target's token for each of the draft's, to meet token by token.
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
        guess = self._engine.draft(own, num_tokens).tokens
        translate = self._by_text if self._target_ids is None else self._by_tokens
        return Draft(translate(context, own, guess)[:num_tokens])

    def _by_tokens(
        self, context: TokenIds, own: TokenIds, guess: tuple[int, ...]
    ) -> tuple[int, ...]:
        """As far as both know the tokens."""
        del context, own
        assert self._target_ids is not None
        ids = self._target_ids[list(guess)]
        unknown = np.flatnonzero(ids < 0)
        return tuple(ids[: unknown[0] if len(unknown) else None].tolist())

    def _by_text(self, context: TokenIds, own: TokenIds, guess: tuple[int, ...]) -> tuple[int, ...]:
        """The same words in the target's tokens."""
        said = np.concatenate((own[-NUM_TAIL:], np.asarray(guess, dtype=np.int32)))
        before, after = self._draft.text(own[-NUM_TAIL:]), self._draft.text(said)
        if not after.startswith(before):
            return ()  # The new tokens complete a character that had begun before them.
        return self._tokens_of(context, after[len(before) :])

    def _tokens_of(self, context: TokenIds, text: str) -> tuple[int, ...]:
        """`text` in the target's tokens, as it goes on behind the context."""
        if not text:
            return ()
        tail = context[-NUM_TAIL:]
        together = self._target.plain(self._target.text(tail) + text)
        if np.array_equal(together[: len(tail)], tail):
            return tuple(together[len(tail) :].tolist())
        return tuple(self._target.plain(text).tolist())
