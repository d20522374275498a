"""Guides that are compiled, and the errors for others."""

import json
import re
import subprocess
import sys
import threading
import time

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
TAG = {"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}
TAGS = {"structures": [TAG], "triggers": ["<f"]}


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
        (Guide("json_schema", '{"const": "\\ud800"}'), "guided_decoding_guide of type"),
        (Guide("json_schema", f'{{"minimum": 1{"0" * 4000}}}'), "guided_decoding_guide of type"),
        (Guide("json_schema", '{"not": {}}'), 'Unimplemented keys: ["not"]'),
        (Guide("json_schema", '{"type": "text"}'), "Invalid type: text"),
        (Guide("json_schema", '{"enum": []}'), "anyOf is empty"),
        (Guide("json_schema", '{"$ref": "#"}'), "matches no text at all"),
        (Guide("json_schema", "[" * 65 + "]" * 65), f"nest {MAX_NESTING} levels deep; given 65"),
        (Guide("json_schema", " " * (MAX_GUIDE_BYTES + 1)), f"{MAX_GUIDE_BYTES} bytes; given"),
        (Guide("regex", "a("), "unclosed group"),
        (Guide("regex", "(?=a)"), "look-around"),
        (Guide("ebnf_grammar", "nonsense"), "guided_decoding_guide is no grammar"),
        (Guide("ebnf_grammar", 'start: start "a"'), "matches no text at all"),
        (Guide("structural_tag", "{}"), "'triggers', a list of texts, and 'structures'"),
        (Guide("structural_tag", json.dumps(TAGS | {"triggers": "<f"})), "a list of texts"),
        (
            Guide("structural_tag", json.dumps({**TAGS, "structures": [{**TAG, "schema": 5}]})),
            "a schema must be an object or a boolean",
        ),
        (Guide("structural_tag", json.dumps(TAGS | {"triggers": ["x"]})), "no trigger that begins"),
        (Guide("structural_tag", json.dumps(TAGS | {"structures": []})), "1 or more structures"),
    ],
)
def test_error_says_what_is_wrong_with_a_guide(guide, message):
    """The client can mend it, so it is an invalid request."""
    with pytest.raises(InvalidRequestError) as raised:
        compiler(BYTES).compile(guide)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


CHAIN = {str(n): {"items": {"$ref": f"#/x/{n + 1}"}} for n in range(1300)} | {"1300": {}}
HOSTILE = {
    "references": Guide("json_schema", json.dumps({"$ref": "#/x/0", "x": CHAIN})),
    "rules": Guide(
        "ebnf_grammar",
        "start: x0\n" + "\n".join(f"x{n}: x{n + 1}" for n in range(3500)) + '\nx3500: "a"',
    ),
    "repeats": Guide("regex", "(((a{1,1000}){1,1000}){1,1000}){1,1000}"),
    "alternatives": Guide("regex", "(a|aa)*b" * 4000),
}
"""Guides within the limit of bytes, over which a compiler may recurse or search for long."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_guide_ends_no_process(name):
    """It is compiled or refused; the requests beside it must not notice."""
    guide = HOSTILE[name]
    assert len(guide.text) < MAX_GUIDE_BYTES
    script = (
        "from specdec.constraints.guide import Guide\n"
        "from specdec.errors import InvalidRequestError\n"
        "from tests.unit.constraints.small_vocabulary import compiler\n"
        "from tests.unit.constraints.test_compiler import BYTES, HOSTILE\n"
        "try:\n"
        f"    compiler(BYTES).compile(HOSTILE[{name!r}]).constraint()\n"
        "except InvalidRequestError as error:\n"
        "    print(error)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, timeout=60
    )

    assert (found.returncode, found.stderr) == (0, "")


def test_an_ambiguous_grammar_ends_its_own_answer_only():
    """Its masks would take seconds, in which all requests of the engine wait."""
    grammar = "start: start start | /[a-z ]/ | start start start"
    own = compiler(BYTES).compile(Guide("ebnf_grammar", grammar)).constraint()
    answer = np.frombuffer(b"many words that could be read in very many ways" * 3, dtype=np.uint8)
    begun_s = time.process_time()

    def follow():
        for size in range(len(answer)):
            own.after(answer[:size].astype(np.int32))

    with pytest.raises(InvalidRequestError, match="too complex to follow"):
        follow()

    assert own.has_failed
    assert time.process_time() - begun_s < 2.0


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
