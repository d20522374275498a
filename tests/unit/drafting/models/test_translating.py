"""Cross-vocabulary drafts: the target's context and the draft are translated, mostly as text."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting.models.translating import CONTEXT_STEP, TranslatingDraft
from specdec.engines.protocol import Draft
from specdec.serving.text.tokenizing import Tokenizer

CHECKPOINT = Path(__file__).parents[4] / "model_repository/target/1/checkpoint"
CONTEXT = "Once upon a time there was a"
GOES_ON = " ship 🚀 that sailed at noon."


class Letters:
    """A tokenizer whose tokens are Unicode code points."""

    def text(self, ids):
        """Return the text of the tokens."""
        return "".join(map(chr, ids.tolist()))

    def plain(self, text):
        """Return one token for each letter, [n] int32."""
        return np.asarray([ord(letter) for letter in text], dtype=np.int32)


class KnowingDraft:
    """A draft engine that proposes a given text, letter by letter."""

    def __init__(self, text):
        self._text = text
        self.contexts = []

    def draft(self, context, num_tokens):
        """Return the first `num_tokens` letters of the text as the draft."""
        self.contexts.append(Letters().text(context))
        return Draft(tuple(Letters().plain(self._text)[:num_tokens].tolist()))


@lru_cache
def real_target():
    """Return the target's real tokenizer."""
    return Tokenizer(CHECKPOINT)


@pytest.fixture
def target():
    """Return the target's real tokenizer."""
    return real_target()


def test_letters_become_the_targets_tokens(target):
    """The draft has the tokens into which the target's tokenizer splits the same text."""
    engine = KnowingDraft(GOES_ON)
    context = target.plain(CONTEXT)
    whole = target.plain(CONTEXT + GOES_ON)

    draft = TranslatingDraft(engine, target, Letters(), 1000).draft(context, 24)

    assert engine.contexts == [CONTEXT]
    assert draft.tokens[:5] == tuple(whole[len(context) : len(context) + 5].tolist())
    assert draft.logits is None


def test_draft_has_no_more_tokens_than_asked_for(target):
    """This holds even if the target's tokenizer splits one letter into several tokens."""
    engine = KnowingDraft("🚀🚀🚀🚀")

    draft = TranslatingDraft(engine, target, Letters(), 1000).draft(target.plain(CONTEXT), 3)

    assert len(draft.tokens) == 3


LETTERS = st.text("ab cñ🚀.\n", max_size=20)


@given(LETTERS.filter(bool), LETTERS)
def test_translated_draft_spells_the_drafted_text(context, goes_on):
    """Whatever the draft engine proposes, the translated tokens spell a beginning of it."""
    target = real_target()
    engine = KnowingDraft(goes_on)

    tokens = (
        TranslatingDraft(engine, target, Letters(), 1000).draft(target.plain(context), 8).tokens
    )

    # A last token that ends within a character spells it as U+FFFD.
    spelt = target.text(np.asarray(tokens, dtype=np.int32)).rstrip("\ufffd")
    assert goes_on[:8].startswith(spelt.rstrip()) or spelt == goes_on[:8]


def test_translation_by_tokens_ends_at_a_token_that_the_target_lacks():
    """Each known token becomes the target's; nothing follows an unknown one."""
    table = np.full(200, -1, dtype=np.int32)
    table[[ord("a"), ord("b")]] = 5, 6
    engine = KnowingDraft("abxa")

    draft = TranslatingDraft(engine, Letters(), Letters(), 1000, table)

    assert draft.draft(Letters().plain("hi"), 4).tokens == (5, 6)
    assert engine.contexts == ["hi"]


@pytest.mark.parametrize("length", [199, 200, 263, 264, 265, 1000])
def test_long_context_is_cut_in_steps(length):
    """The rest fits together with the draft, and its beginning moves only every 64 tokens."""
    engine = KnowingDraft("")
    text = "".join(chr(97 + number % 26) for number in range(length))

    TranslatingDraft(engine, Letters(), Letters(), 200).draft(Letters().plain(text), 4)

    (seen,) = engine.contexts
    assert len(seen) <= 196
    assert len(seen) > 196 - CONTEXT_STEP or len(seen) == length
    assert text.endswith(seen)
    assert (length - len(seen)) % CONTEXT_STEP == 0
