"""Text is released in whole characters, and no part of a stop text is ever released."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specdec.serving.text.text_stream import TextStream, Token

CHECKPOINT = Path(__file__).parents[4] / "model_repository/target/1/checkpoint"


def tokens_of(count):
    """Return `count` tokens with ascending ids from 0."""
    return [Token(id=n, source=0, position=0, drafter=None) for n in range(count)]


def cut_at_first(pieces, stop_words):
    """Return the text before the first stop text that is complete after some token."""
    text = ""
    for piece in pieces:
        text += piece or ""
        starts = [start for word in stop_words if (start := text.find(word)) >= 0]
        if starts:
            return text[: min(starts)]
    return text


def run(pieces, stop_words, round_sizes):
    """Push tokens with these texts in rounds; return (stream, released pieces)."""
    stream = TextStream(lambda token: pieces[token], stop_words)
    tokens = tokens_of(len(pieces))
    released = []
    at = 0
    for size in round_sizes:
        released.append(stream.push(tokens[at : at + size]))
        at += size
        if stream.stopped or at >= len(tokens):
            break
    released.append(stream.finish())
    return stream, released


@given(
    pieces=st.lists(st.one_of(st.none(), st.text("abc", max_size=3)), min_size=1, max_size=16),
    stop_words=st.lists(st.text("abc", min_size=1, max_size=5), max_size=3),
    round_sizes=st.lists(st.integers(1, 5), min_size=16, max_size=16),
)
def test_released_text_is_the_whole_text_up_to_the_first_stop(pieces, stop_words, round_sizes):
    """For any tokens, rounds and stop texts, the joined pieces are the text before the stop."""
    whole = "".join(piece or "" for piece in pieces)
    expected = cut_at_first(pieces, stop_words)

    stream, released = run(pieces, stop_words, round_sizes)

    assert "".join(piece.text for piece in released) == expected
    assert stream.stopped == (expected != whole)
    # At every moment the released text is a beginning of it: nothing had to be taken back.
    seen = ""
    for piece in released:
        seen += piece.text
        assert expected.startswith(seen)


@given(
    pieces=st.lists(st.one_of(st.none(), st.text("ab", max_size=2)), min_size=1, max_size=12),
    stop_words=st.lists(st.text("ab", min_size=1, max_size=4), max_size=2),
    round_sizes=st.lists(st.integers(1, 4), min_size=12, max_size=12),
)
def test_tokens_are_released_together_with_their_text(pieces, stop_words, round_sizes):
    """Tokens come in order, each once, and none after the stop text."""
    _, released = run(pieces, stop_words, round_sizes)

    ids = [token.id for piece in released for token in piece.tokens]
    assert ids == list(range(len(ids)))
    text = "".join(piece.text for piece in released)
    for piece in released[:-1]:
        assert (
            piece.text
            == "".join(pieces[token.id] or "" for token in piece.tokens)[: len(piece.text)]
        )
    # The rounds in which tokens came change when they are released, and nothing else.
    _, at_once = run(pieces, stop_words, [len(pieces)])
    assert [token.id for piece in at_once for token in piece.tokens] == ids
    # Only the last token may lack text, cut off by the stop text.
    own = [pieces[number] or "" for number in ids]
    assert "".join(own[:-1]) == text[: len("".join(own[:-1]))]
    assert len("".join(own)) >= len(text)


def test_without_stop_words_every_token_goes_out_at_once():
    """Nothing is held back, not even tokens that complete no character."""
    stream = TextStream(lambda token: ["a", None, "é", ""][token])

    released = [stream.push([token]) for token in tokens_of(4)]

    assert [(piece.text, len(piece.tokens)) for piece in released] == [
        ("a", 1),
        ("", 1),
        ("é", 1),
        ("", 1),
    ]
    assert stream.finish().tokens == ()


def test_stop_token_ends_the_answer_without_cutting_it():
    """The tokens after it are dropped, and the decoder's rest comes out, as at the end token."""
    pieces = ["a", None, "b", "c"]
    stream = TextStream(lambda token: pieces[token], (), [2], rest=lambda: "\ufffd")

    released = [stream.push(tokens_of(4)), stream.finish()]

    assert stream.stopped
    assert "".join(piece.text for piece in released) == "a\ufffd"
    assert [token.id for piece in released for token in piece.tokens] == [0, 1]


def test_only_what_may_begin_a_stop_text_is_held():
    """A token is held while a stop text may begin in it, and released if none does."""
    stream = TextStream(lambda token: ["one ", "st", "art ", "st", "op", " two"][token], ["stop"])
    tokens = tokens_of(6)

    assert stream.push(tokens[:2]).text == "one "
    assert stream.push(tokens[2:3]).text == "start "
    assert stream.push(tokens[3:4]).text == ""
    last = stream.push(tokens[4:])
    assert (last.text, last.tokens) == ("", ())
    assert stream.stopped


def test_bytes_of_a_stop_character_are_held():
    """A token with the first bytes of a character is held: the character may begin a stop text."""
    stream = TextStream(lambda token: ["a", None, None, "🚀"][token], ["🚀!", "🚀"])
    tokens = tokens_of(4)

    released = [stream.push([token]) for token in tokens]

    assert [token.id for piece in released for token in piece.tokens] == [0]
    assert stream.stopped
    assert stream.finish().tokens == ()


def test_stop_text_inside_a_token_keeps_the_text_before_it():
    """A token that holds text and the stop text is returned with its text cut."""
    stream = TextStream(lambda token: ["a", "b.\n\nc", "d"][token], ["\n\n"])

    piece = stream.push(tokens_of(3))

    assert piece.text == "ab."
    assert [token.id for token in piece.tokens] == [0, 1]
    assert stream.stopped


def test_earliest_stop_text_wins():
    """The stop text that begins first cuts the answer, whatever the order of the stop texts."""
    for words in (["cd", "bcx", "b"], ["b", "cd"]):
        stream = TextStream(lambda _: "abcd", words)

        assert stream.push(tokens_of(1)).text == "a"


def test_unfinished_stop_text_is_returned_at_the_end():
    """Text that only looked like the beginning of a stop text belongs to the answer."""
    stream = TextStream(lambda token: ["x", "st", "o"][token], ["stop"])

    assert stream.push(tokens_of(3)).text == "x"
    piece = stream.finish()
    assert piece.text == "sto"
    assert len(piece.tokens) == 2
    assert not stream.stopped


@pytest.fixture(scope="module")
def tokenizer():
    """Return the target's real tokenizer."""
    from specdec.serving.text.tokenizing import Tokenizer  # noqa: PLC0415 - slow to import

    return Tokenizer(CHECKPOINT)


def real_ids(tokenizer, text):
    """Return the token ids of a text."""
    return tokenizer._backend.encode(text, add_special_tokens=False).ids


@given(
    text=st.text(
        st.one_of(
            st.characters(exclude_categories=["Cs"]),
            st.sampled_from("äß€語🚀"),
        ),
        min_size=1,
        max_size=24,
    ),
    stop=st.text(st.sampled_from("äß€語🚀 ab"), max_size=2),
    round_size=st.integers(1, 6),
)
def test_real_tokenizer_never_splits_a_character(tokenizer, text, stop, round_size):
    """With byte-level tokens of the real vocabulary, the stream is the text before the stop."""
    ids = real_ids(tokenizer, text)
    whole = tokenizer.text(np.asarray(ids, dtype=np.int32))
    # The vocabulary lacks a few bytes of Unicode planes that are hardly used.
    assume(whole == text)
    decoder = tokenizer.decoder()
    words = [stop] if stop else []
    stream = TextStream(lambda token: decoder(ids[token]), words, rest=decoder.rest)
    tokens = tokens_of(len(ids))
    pieces = []
    for at in range(0, len(ids), round_size):
        pieces.append(stream.push(tokens[at : at + round_size]))
        if stream.stopped:
            break
    pieces.append(stream.finish())

    assert "".join(piece.text for piece in pieces) == cut_at_first(whole, [stop] if stop else [])
    for piece in pieces:
        piece.text.encode()
    if not stream.stopped:
        assert sum(len(piece.tokens) for piece in pieces) == len(ids)


def test_character_cut_off_at_the_end_is_not_shown(tokenizer):
    """An answer that ends inside a character ends before it, without a replacement character."""
    ids = real_ids(tokenizer, "rocket 🚀")
    decoder = tokenizer.decoder()
    stream = TextStream(lambda token: decoder(ids[token]), rest=decoder.rest)

    piece = stream.push(tokens_of(len(ids) - 1))

    assert piece.text == "rocket"
    assert stream.finish().text == " "
    assert len(piece.tokens) == len(ids) - 1


def test_whole_replacement_characters_at_the_end_are_shown(tokenizer):
    """A U+FFFD that the tokens really encode is sent, at the latest at the end of the answer."""
    ids = [*real_ids(tokenizer, "odd \ufffd"), *real_ids(tokenizer, "\ufffd\ufffd")]
    decoder = tokenizer.decoder()
    stream = TextStream(lambda token: decoder(ids[token]), rest=decoder.rest)

    pieces = [stream.push(tokens_of(len(ids))), stream.finish()]

    assert "".join(piece.text for piece in pieces) == "odd \ufffd\ufffd\ufffd"
    assert sum(len(piece.tokens) for piece in pieces) == len(ids)


@pytest.mark.parametrize("num_before", [0, 1, 2])
def test_replacement_character_can_be_a_stop_word(tokenizer, num_before):
    """It stops the answer even as its last character."""
    ids = [*real_ids(tokenizer, "odd"), *real_ids(tokenizer, "\ufffd")]
    decoder = tokenizer.decoder()
    stream = TextStream(lambda token: decoder(ids[token]), ["\ufffd"], rest=decoder.rest)
    tokens = tokens_of(len(ids))

    pieces = [stream.push(tokens[:num_before]), stream.push(tokens[num_before:]), stream.finish()]

    assert "".join(piece.text for piece in pieces) == "odd"
    assert stream.stopped


@pytest.mark.parametrize("word", ["<end>", "b<end>", "<end>a", "<end><end>"])
def test_stop_word_may_name_a_special_token(word):
    """The special token adds nothing to the text but stops it; no part of its name is released."""
    texts, specials = {1: "a", 2: "b"}, {7: "<end>"}
    ids = [1, 2, 7, 1, 7, 7, 2]
    stream = TextStream(texts.get, [word], special_texts=specials)

    pieces = [stream.push([Token(each, 0, 0, None) for each in ids]), stream.finish()]

    assert stream.stopped
    expected = {"<end>": "ab", "b<end>": "a", "<end>a": "ab", "<end><end>": "aba"}
    assert "".join(piece.text for piece in pieces) == expected[word]


def test_special_token_without_a_stop_word_is_ignored():
    """A stop text is found across it, as in the text that the client sees."""
    stream = TextStream({1: "a", 2: "b"}.get, ["ab"], special_texts={7: "<end>"})

    stream.push([Token(each, 0, 0, None) for each in (1, 7, 2)])

    assert stream.stopped
