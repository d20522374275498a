"""Guides that are compiled, and the errors for others."""

import json
import re
import threading

import numpy as np
import pytest
from tokenizers import Tokenizer

from specdec.constraints.compiler import NUM_KEPT
from specdec.constraints.grammars import MAX_GUIDE_BYTES, MAX_NESTING
from specdec.constraints.guide import GUIDE_KINDS, Guide
from specdec.constraints.tokenizer import compiler_for
from specdec.errors import InvalidRequestError
from specdec.folders import CHECKOUT
from tests.unit.constraints.small_vocabulary import compiler

DEFAULT_TARGET = CHECKOUT / "model_repository" / "target" / "1" / "checkpoint"
BYTES = (*(bytes([each]) for each in range(128)), b"<end>")
"""A vocabulary for texts in ASCII."""
TAGS = {
    "structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}],
    "triggers": ["<f"],
}


def matches(guide, text):
    """Say whether a guide allows this text as a whole answer."""
    ids = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)
    after = compiler(BYTES).compile(guide).constraint().after(ids)
    return after is not None and after.may_end


@pytest.mark.parametrize(
    ("guide", "allowed", "forbidden"),
    [
        (Guide("json"), ['{"a": [1, true]}', "[]"], ["1", "{a}", '{"a":1}', " {}"]),
        (Guide("json_schema", '{"type": "integer", "minimum": 3}'), ["3", "12"], ["2", "x", "3 "]),
        (Guide("json_schema", "true"), ["null", '"x"'], ["x"]),
        (Guide("json_schema", '{"enum": ["a", 1]}'), ['"a"', "1"], ["a", "2"]),
        (Guide("regex", "(yes|no)!"), ["yes!", "no!"], ["yes", "maybe!"]),
        (Guide("ebnf_grammar", 'root ::= "a" root | "b"'), ["b", "aab"], ["a", "ba"]),
        (Guide("ebnf_grammar", 'start: "a" start | "b"'), ["b", "aab"], ["a", "ba"]),
        (Guide("structural_tag", json.dumps(TAGS)), ["hi <f>12</f>!", "hi"], ["<f>x</f>"]),
    ],
)
def test_a_guide_allows_what_it_says(guide, allowed, forbidden):
    """JSON has the white space of Python's json.dumps, which bounds its length."""
    assert [text for text in allowed if not matches(guide, text)] == []
    assert [text for text in forbidden if matches(guide, text)] == []


@pytest.mark.parametrize(
    ("guide", "message"),
    [
        (Guide("json_schema", "{"), "is not JSON"),
        (Guide("json_schema", "[1]"), "must be an object or a boolean"),
        (Guide("json_schema", '{"not": {}}'), 'Unimplemented keys: ["not"]'),
        (Guide("json_schema", '{"type": "text"}'), "Invalid type: text"),
        (Guide("json_schema", '{"enum": []}'), "anyOf is empty"),
        (Guide("json_schema", '{"$ref": "#"}'), "matches no text at all"),
        (Guide("json_schema", "[" * 65 + "]" * 65), f"nest {MAX_NESTING} levels deep; given 65"),
        (Guide("json_schema", " " * (MAX_GUIDE_BYTES + 1)), f"{MAX_GUIDE_BYTES} bytes; given"),
        (Guide("regex", "a("), "unclosed group"),
        (Guide("regex", "(?=a)"), "look-around"),
        (Guide("ebnf_grammar", "nonsense"), "cannot be read"),
        (Guide("ebnf_grammar", 'start: start "a"'), "matches no text at all"),
        (Guide("structural_tag", "{}"), "'triggers' and 'structures'"),
        (Guide("structural_tag", json.dumps(TAGS | {"triggers": ["x"]})), "no trigger begins"),
        (Guide("structural_tag", json.dumps(TAGS | {"structures": []})), "at least 1 structure"),
    ],
)
def test_error_says_what_is_wrong_with_a_guide(guide, message):
    """The client can mend it, so it is an invalid request."""
    with pytest.raises(InvalidRequestError) as raised:
        compiler(BYTES).compile(guide)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_brackets_in_strings_do_not_nest():
    """Only the structure of the JSON counts."""
    schema = json.dumps({"const": '[{"\\' * 100})

    assert matches(Guide("json_schema", schema), json.dumps('[{"\\' * 100))


def test_a_guide_is_compiled_once():
    """Each round of a request sends its guide again."""
    own, guide = compiler(BYTES), Guide("regex", "a+")

    assert own.find(guide) is None
    assert own.compile(guide) is own.compile(Guide("regex", "a+")) is own.find(guide)


def test_only_the_latest_guides_are_kept():
    """Memory stays bounded, and a guide that is used stays."""
    own, used = compiler(BYTES), Guide("regex", "used")
    kept = own.compile(used)
    for number in range(NUM_KEPT):
        own.compile(Guide("regex", f"a{number}"))
        assert own.find(used) is kept

    assert own.find(Guide("regex", "a0")) is None


def test_threads_compile_at_the_same_time():
    """All get a result, equal guides the same one."""
    own, found = compiler(BYTES), []
    threads = [
        threading.Thread(target=lambda n=n: found.append(own.compile(Guide("regex", f"a{n % 3}"))))
        for n in range(12)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len(found) == 12
    assert len(set(map(id, found))) == 3


def test_names_of_special_tokens_are_text():
    """A guide may force their letters, and never the tokens themselves."""
    own = compiler_for(DEFAULT_TARGET, 49152).compile(Guide("regex", "<.im_end.>")).constraint()
    answer = []
    while not (found := own.after(np.asarray(answer, dtype=np.int32))).may_end:
        answer.append(int(np.flatnonzero(~found.forbidden)[0]))

    tokenizer = Tokenizer.from_file(str(DEFAULT_TARGET / "tokenizer.json"))
    assert len(answer) > 3
    assert re.fullmatch("<.im_end.>", tokenizer.decode(answer, skip_special_tokens=True))


def test_all_kinds_are_known():
    """Each kind has a grammar."""
    assert {"json", "json_schema", "regex", "ebnf_grammar", "structural_tag"} == set(GUIDE_KINDS)
