"""Completions: prompts as texts or tokens, several at once, and their defaults."""

import pytest

from tests.doubles.triton_stream import said
from tests.unit.gateway.conftest import running


def complete(gateway, prompt, **fields):
    """Return the answer to a completion of this prompt."""
    return gateway.ask("/v1/completions", {"model": "specdec", "prompt": prompt} | fields)


def test_answer_in_one_body(shared):
    """At most 16 tokens come without `max_tokens`, as from OpenAI."""
    body = complete(shared, "Once").json
    assert body["object"] == "text_completion"
    choice = {"index": 0, "text": "Grüße", "logprobs": None, "finish_reason": "stop"}
    assert body["choices"] == [choice]
    inputs = shared.triton.asked[-1][1]
    assert (inputs["text_input"], inputs["max_tokens"]) == ("Once", 16)
    assert inputs["exclude_input_in_output"] is True


def test_answer_as_events(shared):
    """There is no event before the first text."""
    *events, done = complete(shared, "Once", stream=True).events
    assert done == "[DONE]"
    assert [each["choices"][0]["text"] for each in events] == ["Grü", "ße", ""]
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([5, 6], [{"input_ids": [5, 6]}]),
        (["a", "b"], [{"text_input": "a"}, {"text_input": "b"}]),
        ([[5], [6, 7]], [{"input_ids": [5]}, {"input_ids": [6, 7]}]),
    ],
)
def test_prompts_of_every_form(shared, prompt, expected):
    """Each prompt becomes a request of its own."""
    num_before = len(shared.triton.asked)
    assert complete(shared, prompt).status == 200
    names = ("text_input", "input_ids")
    found = [
        {name: inputs[name] for name in names if name in inputs}
        for _, inputs in shared.triton.asked[num_before:]
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_choices_are_numbered_by_prompt_and_answer():
    """With two prompts and n = 2, choices 0 and 1 belong to the first prompt."""

    def answer(inputs):
        text = f"{inputs['text_input']}{inputs['seed']}"
        end = {"finish_reason": "length", "num_input_tokens": 3, "num_output_tokens": 1}
        yield said(text, [1], **end)

    with running(answer) as gateway:
        body = complete(gateway, ["a", "b"], n=2, seed=7).json
    assert [each["text"] for each in body["choices"]] == ["a7", "a8", "b7", "b8"]
    assert [each["index"] for each in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"] == {"prompt_tokens": 6, "completion_tokens": 4, "total_tokens": 10}


def test_echo_asks_for_the_prompt(shared):
    """The model puts the prompt before the answer."""
    complete(shared, "Once", echo=True)
    assert shared.triton.asked[-1][1]["exclude_input_in_output"] is False


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"prompt": ["x"] * 17}, "n"),
    ],
)
def test_refused_by_name(shared, fields, param):
    """The error names the field."""
    answer = complete(shared, **({"prompt": "x"} | fields))
    assert answer.status == 400
    assert answer.error["param"].startswith(param)
