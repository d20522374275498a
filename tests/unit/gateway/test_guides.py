"""Constraints of OpenAI's and vLLM's forms become the model's two inputs."""

import json

import pytest

from tests.unit.gateway.conftest import running

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def guide_of(gateway, **fields):
    """Return the guide that the model gets for a chat with these fields."""
    assert gateway.chat(**fields).status == 200
    asked = gateway.triton.asked[-1][1]
    return asked.get("guided_decoding_guide_type"), asked.get("guided_decoding_guide")


def test_without_a_constraint_there_is_no_guide(shared):
    """Text is the form that asks for nothing."""
    assert guide_of(shared) == (None, None)
    assert guide_of(shared, response_format={"type": "text"}) == (None, None)


def test_response_format(shared):
    """`strict`, name and description have no effect."""
    form = {"name": "a", "schema": SCHEMA, "strict": False, "description": "x"}

    kind, text = guide_of(shared, response_format={"type": "json_schema", "json_schema": form})
    assert (kind, json.loads(text)) == ("json_schema", SCHEMA)
    kind, text = guide_of(shared, response_format={"type": "json_object"})
    assert (kind, json.loads(text)) == ("json_schema", {"type": "object"})


@pytest.mark.parametrize("field", ["response_format", "structured_outputs"])
def test_error_names_the_field_that_has_the_guide(field):
    """The model knows its own inputs only."""
    constraint = {"type": "json_object"} if field == "response_format" else {"regex": "("}
    message = "invalid_request: guided_decoding_guide of type 'x' is wrong"
    with running(lambda _: [message]) as gateway:
        answer = gateway.chat(**{field: constraint})
    assert (answer.status, answer.error["param"]) == (400, field)
    assert answer.error["message"] == f"{field} of type 'x' is wrong"


@pytest.mark.parametrize(
    ("constraint", "kind", "text"),
    [
        ({"json": SCHEMA}, "json_schema", json.dumps(SCHEMA)),
        ({"json": '{"const": 1}'}, "json_schema", '{"const": 1}'),
        ({"json_object": True}, "json_schema", '{"type": "object"}'),
        ({"regex": "a+"}, "regex", "a+"),
        ({"choice": ["yes", 'n"o']}, "ebnf_grammar", 'start: "yes" | "n\\"o"'),
        ({"grammar": 'root ::= "a"'}, "ebnf_grammar", 'root ::= "a"'),
        ({"structural_tag": "{}"}, "structural_tag", "{}"),
    ],
)
def test_structured_outputs(shared, constraint, kind, text):
    """Each of vLLM's constraints has a guide, in chats and in completions."""
    assert guide_of(shared, structured_outputs=constraint) == (kind, text)

    body = {"model": "specdec", "prompt": "x", "structured_outputs": constraint}
    assert shared.ask("/v1/completions", body=body).status == 200
    assert shared.triton.asked[-1][1]["guided_decoding_guide"] == text
