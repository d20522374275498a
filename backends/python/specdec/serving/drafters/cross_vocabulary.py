"""Support draft models whose tokenizer differs from the target's (cross-vocabulary drafts)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specdec.drafting.models.translating import TARGET_IDS_FILE, TranslatingDraft
from specdec.engines.protocol import DraftEngine
from specdec.errors import ConfigurationError
from specdec.serving.text.tokenizing import Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class CrossVocabularyDraft:
    """A draft model whose tokenizer differs from the target's.

    `tokenizer` is the draft model's own. `target_ids`, [n] int32, maps each of its tokens to the
    target's token, or to -1 if the target lacks it. It exists if the model was built to draft only
    tokens that the target has too; if None, drafts are translated as text.
    """

    tokenizer: Tokenizer
    target_ids: npt.NDArray[np.int32] | None

    @classmethod
    def load(cls, directory: Path) -> CrossVocabularyDraft:
        """Read the draft model's tokenizer and, if there is one, its table of target tokens.

        Raises ConfigurationError if there is no tokenizer, or if the table has fewer entries than
        the tokenizer has tokens.
        """
        tokenizer, file = Tokenizer(directory), directory / TARGET_IDS_FILE
        target_ids = np.load(file) if file.exists() else None
        if target_ids is not None and len(target_ids) < tokenizer.vocab_size:
            raise ConfigurationError(
                f"{file} has {len(target_ids)} entries; the tokenizer beside it has "
                f"{tokenizer.vocab_size} tokens"
            )
        return cls(tokenizer, target_ids)

    def __str__(self) -> str:
        way = "by text" if self.target_ids is None else "by the tokens that both have"
        return f"another vocabulary ({self.tokenizer.vocab_size} tokens), translated {way}"

    def translating(
        self, engine: DraftEngine, target: Tokenizer, max_seq_len: int
    ) -> TranslatingDraft:
        """Return a draft engine that takes and proposes the target's tokens, and calls `engine`.

        `max_seq_len` is the most tokens that `engine` takes, context and draft together.
        """
        max_context = min(self.tokenizer.max_seq_len, max_seq_len)
        return TranslatingDraft(engine, target, self.tokenizer, max_context, self.target_ids)
