"""Tests that no answer contains a banned text, in whatever tokens it could be spelt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer

from specdec.acceptance.banned_text import BannedText, Vocabulary
from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.errors import UnsupportedError
from specdec.token_texts import read_token_texts
from tests.unit.serving.text.test_text_stream import CHECKPOINT

LETTERS = st.text("ab ", min_size=1, max_size=4).map(str.encode)
VOCABULARIES = st.lists(st.one_of(LETTERS, st.just(b"")), min_size=1, max_size=40)


@given(
    texts=VOCABULARIES,
    words=st.lists(LETTERS, min_size=1, max_size=4),
    picks=st.lists(st.integers(0, 39), max_size=12),
)
def test_bans_exactly_the_tokens_that_would_complete_a_text(texts, words, picks):
    """After any answer without a banned text, these are the tokens found by trying each one."""
    banned = BannedText(words, Vocabulary(texts))
    answer: list[int] = []
    for pick in [*picks, 0]:
        written = b"".join(texts[token] for token in answer)
        expected = {
            token
            for token, text in enumerate(texts)
            if any(word in written + text for word in words)
        }
        found = banned.tokens_after(np.asarray(answer, dtype=np.int32))
        assert set(found.tolist()) == expected
        if pick % len(texts) not in expected:
            answer.append(pick % len(texts))


@given(texts=VOCABULARIES, beginning=st.binary(min_size=1, max_size=3))
def test_finds_all_tokens_with_a_beginning(texts, beginning):
    """The beginning may consist of any bytes, the highest (0xff) included."""
    texts = [*texts, b"\xff\xff", b"\xff", b"\xfe\xff\x00"]
    found = Vocabulary(texts).starting_with(beginning)
    assert sorted(found.tolist()) == [n for n, t in enumerate(texts) if t.startswith(beginning)]


def test_token_that_holds_several_banned_texts_is_named_once():
    """A token that is always banned is listed once, whatever the number of texts in it.

    Each entry costs a write in every row's logits, and banned letters are in most tokens.
    """
    banned = BannedText([b"a", b"b", b"ab"], Vocabulary([b"ab", b"c"]))
    assert banned.tokens_after(np.asarray([1], dtype=np.int32)).tolist() == [0]


def test_only_the_answer_counts():
    """A prompt that ends with the beginning of a banned text bans nothing."""
    banned = BannedText([b"ab"], Vocabulary([b"a", b"b"]))
    draw = Draw(SamplingParams(bad_texts=("ab",)), np.asarray([0, 0], np.int32), 2, banned=banned)
    after_prompt = draw.banned.tokens_after(draw.context[draw.num_prompt_tokens :])
    assert after_prompt.tolist() == []
    assert draw.params.looks_back


def test_token_texts_are_those_of_the_real_tokenizer():
    """Each token's bytes decode to the tokenizer's own text, even for parts of characters."""
    tokenizer = RustTokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    texts = read_token_texts(CHECKPOINT, tokenizer.get_vocab_size())
    for token, text in enumerate(texts):
        assert text.decode(errors="replace") == tokenizer.decode([token])


def test_engine_without_a_tokenizer_says_so(tmp_path):
    """Without tokenizer.json it is unknown which tokens spell a text; the error names the file."""
    with pytest.raises(UnsupportedError, match=r"tokenizer\.json"):
        read_token_texts(tmp_path, 10)
