"""Answers that follow a guide, on a live server: they match, and drafts change nothing in them."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError

DRAFTERS = ("grammar", "lookup", "suffix", "draft", "eagle3", "eagle3_tree", "tree", "vote", "auto")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "größe": {"type": "integer", "minimum": 0, "maximum": 250},
        "kind": {"enum": ["bird", "fish"]},
        "seen": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "größe", "kind", "seen"],
    "additionalProperties": False,
}
SQL = r"""
start: "SELECT " name ("," " " name)? " FROM " name (" WHERE " name " " ("=" | "<") " " NUMBER)? ";"
name: /[a-z_]{1,12}/
NUMBER: /[0-9]{1,4}/
"""
QUERY = "SELECT N(, N)? FROM N( WHERE N [=<] [0-9]{1,4})?;".replace("N", "[a-z_]{1,12}")
"""The texts of SQL, as a regular expression."""
GUIDES = {"json_schema": json.dumps(SCHEMA), "ebnf_grammar": SQL, "regex": "(yes|no), [a-z ]{5,30}"}


@pytest.fixture(scope="module")
def client(server):
    """Return a gRPC client of the server."""
    with GrpcClient(server.grpc_url, timeout_s=120.0) as opened:
        yield opened


def answer(client, kind, text, **fields):
    """Return the answer to a question about an animal, under a guide."""
    request = {
        "messages": [{"role": "user", "content": "Tell me about an animal."}],
        "max_tokens": 120,
        "seed": 5,
        "guided_decoding_guide_type": kind,
        "guided_decoding_guide": text,
    }
    return client.generate(GenerationRequest(**request | fields))


def check_match(kind, text):
    """Assert that a text matches the guide of this kind."""
    if kind == "json_schema":
        jsonschema.validate(json.loads(text), SCHEMA)
    elif kind == "regex":
        assert re.fullmatch(GUIDES["regex"], text)
    else:
        assert re.fullmatch(QUERY, text)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", GUIDES)
def test_answers_match_and_are_the_same_with_every_drafter(client, kind, temperature):
    """Greedy answers, and those of one seed, have the same tokens as without speculation."""
    off = answer(client, kind, GUIDES[kind], num_draft_tokens=0, temperature=temperature)
    with ThreadPoolExecutor(4) as pool:
        on = list(
            pool.map(
                lambda drafter: answer(
                    client, kind, GUIDES[kind], drafter=drafter, temperature=temperature
                ),
                DRAFTERS,
            )
        )

    assert off.end.finish_reason == "stop"
    check_match(kind, off.text)
    for drafter, each in zip(DRAFTERS, on, strict=True):
        assert each.token_ids == off.token_ids, drafter


@pytest.mark.parametrize("verification", ["rejection", "block", "typical"])
def test_other_modes_keep_to_the_guide(client, verification):
    """Verification by probabilities draws other texts, which match too."""
    for drafter in ("draft", "grammar", "auto"):
        found = answer(
            client,
            "json_schema",
            GUIDES["json_schema"],
            verification=verification,
            temperature=0.8,
            drafter=drafter,
        )
        assert found.end.finish_reason == "stop"
        check_match("json_schema", found.text)


def test_too_few_tokens_leave_the_text_incomplete(client):
    """The reason of the end says so, and the beginning is that of the whole answer."""
    whole = answer(client, "json_schema", GUIDES["json_schema"])
    short = answer(client, "json_schema", GUIDES["json_schema"], max_tokens=8)

    assert (short.end.finish_reason, short.token_ids) == ("length", whole.token_ids[:8])


def test_forced_tokens_are_drafted(client):
    """The drafter `grammar` proposes them, and the target accepts most."""
    found = answer(
        client, "json_schema", GUIDES["json_schema"], drafter="grammar", return_perf_metrics=True
    )

    assert found.end.total_accepted_draft_tokens > 0.7 * found.end.total_draft_tokens > 0


def test_special_tokens_cannot_leave_the_guide(client):
    """A string may have their letters, and no special token."""
    found = answer(client, "json_schema", json.dumps({"const": "<|im_end|>"}))

    assert json.loads(found.text) == "<|im_end|>"


@pytest.mark.parametrize(
    ("kind", "text", "more", "message"),
    [
        ("json_schema", '{"not": {}}', {}, 'Unimplemented keys: \\["not"\\]'),
        ("json_schema", "nonsense", {}, "is not JSON"),
        ("regex", "a(", {}, "unclosed group"),
        ("regex", "", {}, "must have a text"),
        ("json", "{}", {}, "must be empty"),
        ("yaml", "x", {}, "must be one of json, json_schema"),
        ("regex", "a", {"ignore_eos": True}, "a guide needs an end token"),
        ("regex", "a", {"bad_words": ["a"]}, "no token is left to draw"),
    ],
)
def test_wrong_guide_is_refused_with_the_reason(client, kind, text, more, message):
    """The client can mend it, so it is an invalid request."""
    with pytest.raises(SpecdecError, match=message) as raised:
        answer(client, kind, text, **more)
    assert raised.value.error_type == "invalid_request"


def test_guides_of_many_requests_do_not_mix(client):
    """Each answer follows its own guide, whatever runs beside it."""
    words = [f"word{number}" for number in range(12)]

    def ask(word):
        return answer(client, "regex", f"{word}|{word}[a-z]{{3}}", drafter="auto").text

    with ThreadPoolExecutor(6) as pool:
        for word, text in zip(words, pool.map(ask, words), strict=True):
            assert re.fullmatch(f"{word}([a-z]{{3}})?", text)
