"""Tokens made from an engine's text: exactly that text, in no more tokens than asked for."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.engines.text_tokens import UNFINISHED, TextTokens
from specdec.errors import EngineFailedError
from specdec.serving.text.tokenizing import Tokenizer

CHECKPOINT = Path(__file__).parents[3] / "model_repository/target/1/checkpoint"
TOKENIZER = Tokenizer(CHECKPOINT)


def by_twos(text):
    """Split a text into pairs (code point of the first character, two characters)."""
    return [(ord(part[0]), part) for part in re.findall("..?", text, re.DOTALL)]


@given(st.lists(st.text("ab ü🦀\n", max_size=5), min_size=1, max_size=8), st.integers(1, 12))
def test_text_is_exactly_the_engines_in_any_chunks(chunks, max_tokens):
    """All of it comes out, in order, in at most `max_tokens` tokens."""
    tokens = TextTokens(by_twos, max_tokens)
    text, num_tokens = "", 0

    for number, chunk in enumerate(chunks, start=1):
        whole = "".join(chunks[:number])
        new = tokens.add(whole, is_last=number == len(chunks))
        num_tokens += len(new)
        text += "".join(tokens.next_text() for _ in new)
        assert whole.startswith(text)
        del chunk

    assert text == "".join(chunks)
    assert num_tokens <= max_tokens


def test_half_a_character_waits_for_its_other_half():
    """The replacement character that a decoder returns in the meantime is not passed on."""
    tokens = TextTokens(by_twos, 9)

    first = [tokens.next_text() for _ in tokens.add(f"ab{UNFINISHED}", is_last=False)]
    then = [tokens.next_text() for _ in tokens.add("ab🦀", is_last=True)]

    assert (first, then) == (["ab"], ["🦀"])


def test_text_that_is_taken_back_is_an_error():
    """The text may have been sent to the client already."""
    tokens = TextTokens(by_twos, 9)
    tokens.add("abcd", is_last=False)

    with pytest.raises(EngineFailedError, match="taken back"):
        tokens.add("abxx", is_last=False)


@given(st.text(max_size=40))
def test_tokenizer_cuts_without_loss(text):
    """The parts join to the text, with special tokens and characters of several tokens too."""
    parts = TOKENIZER.cut(text + "🦀 語<|im_end|>")

    assert "".join(part for _, part in parts) == text + "🦀 語<|im_end|>"
