"""Tests of how clients show which tokens were drafted: pieces, marks and figures of an answer."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.clients import AnswerEnd, Chunk
from specdec.clients.attribution import ChunkAttribution, TokenAttribution
from specdec.clients.figures import describe_answer, num_compared
from specdec.clients.marks import legend, render


def byte_decoder():
    """Return a decoder whose tokens are bytes, so that some characters take several tokens."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    return lambda token_id: decoder.decode(bytes([token_id])) or None


def cut(text, sources, cuts):
    """Cut an answer of byte tokens into chunks with whole characters only, as the server does."""
    data, shown, chunks = text.encode(), 0, []
    bounds = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for start, end in zip([0, *bounds], bounds, strict=False):
        complete = len(data[:end].decode(errors="ignore"))
        chunks.append(Chunk(text[shown:complete], tuple(data[start:end]), sources[start:end]))
        shown = complete
    return chunks


@given(st.text(max_size=20), st.lists(st.integers(0, 80), max_size=6), st.randoms())
def test_pieces_are_the_text_with_the_sources_of_the_server(text, cuts, random):
    """Splitting by token loses no character and gives each one its token's source.

    A character made of tokens from several sources has the source None.
    """
    sources = tuple(random.randint(0, 2) for _ in text.encode())
    attribution = TokenAttribution(byte_decoder())

    pieces = [piece for chunk in cut(text, sources, cuts) for piece in attribution.pieces(chunk)]

    assert "".join(piece.text for piece in pieces) == text
    assert attribution.is_by_token
    expected, start = [], 0
    for character in text:
        end = start + len(character.encode())
        origins = set(sources[start:end])
        expected.append(origins.pop() if len(origins) == 1 else None)
        start = end
    assert [piece.source for piece in pieces for _ in piece.text] == expected


def test_text_held_back_is_attributed_when_it_comes():
    """Tokens may come before their text, as with a possible stop word; each keeps its source."""
    attribution = TokenAttribution(byte_decoder())

    assert not list(attribution.pieces(Chunk("", (97, 98), (1, 0))))
    pieces = list(attribution.pieces(Chunk("abc", (99,), (1,))))

    assert [(piece.text, piece.source) for piece in pieces] == [("a", 1), ("b", 0), ("c", 1)]


def test_foreign_tokenizer_is_noticed():
    """If the local text differs from the server's, the rest of the answer is marked by chunk."""
    attribution = TokenAttribution(byte_decoder())

    (piece,) = attribution.pieces(Chunk("XY", (97, 98), (1, 0)))

    assert not attribution.is_by_token
    assert (piece.text, piece.source, piece.num_drafted, piece.num_tokens) == ("XY", None, 1, 2)


def test_chunk_without_text_counts_for_the_next():
    """Without a tokenizer, a token of half a character counts for the chunk with the character."""
    attribution = ChunkAttribution()

    assert not list(attribution.pieces(Chunk("", (240,), (1,))))
    (piece,) = attribution.pieces(Chunk("é!", (1, 2), (1, 0)))

    assert (piece.num_drafted, piece.num_tokens, piece.source) == (2, 3, None)


@pytest.mark.parametrize(
    ("sources", "shown"),
    [((0, 0), "ab"), ((1, 1), "⟨ab⟩"), ((2, 2), "⟨2:ab⟩"), ((1, 0), "⟨ab⟩1/2")],
)
def test_marks_without_colour(sources, shown):
    """The target's own text is plain, drafted text is in brackets, a mixed chunk has a count."""
    (piece,) = ChunkAttribution().pieces(Chunk("ab", (1, 2), sources))

    assert render(piece, "text") == shown
    assert render(piece, "none") == "ab"
    assert ("\x1b[" in render(piece, "color")) == (sources != (0, 0))


def test_legend_explains_counts_only_where_they_appear():
    """The legend explains counts only if chunks can be mixed, and is empty without marks."""
    assert "3 of these 4" in legend("text", is_by_token=False)
    assert "3 of these 4" not in legend("text", is_by_token=True)
    assert not legend("none", is_by_token=True)


def test_denominator_of_alpha_by_hand():
    """The denominator of α̂ counts the draft tokens up to the first rejected one, included.

    The rounds have 0 to 4 accepted tokens at k = 4, and 0 and 1 at k = 1. Without counts by k there
    is no result.
    """
    by_length = {"4": [1, 1, 1, 1, 1], "1": [1, 1]}

    # min(accepted + 1, k): 1 + 2 + 3 + 4 + 4 at k = 4, and 1 + 1 at k = 1.
    assert num_compared({"acceptance_histogram_by_draft_length": by_length}) == 16
    assert num_compared({"acceptance_histogram": [1, 1]}) is None


def test_figures_of_an_answer():
    """The line has tokens per second.

    If anything was drafted, it also has α̂, accepted ÷ drafted, k and τ.
    """
    final = AnswerEnd(
        finish_reason="stop",
        total_draft_tokens=80,
        total_accepted_draft_tokens=30,
        speculative_decoding={
            "num_spec_steps": 20,
            "acceptance_histogram_by_draft_length": {"4": [5, 5, 5, 5, 0]},
        },
    )

    line = describe_answer(final, 50, 0.25, 2.0)

    for part in ("25.0 tokens/s", "0.38 (30 of 80", "α̂ 0.60", "k 4.0", "2.50 tokens per drafted"):
        assert part in line
    assert "α̂" not in describe_answer(AnswerEnd("stop", total_draft_tokens=0), 5, None, 1.0)
