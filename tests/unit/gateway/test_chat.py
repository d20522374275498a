"""Chats: what the model is asked, and the form of answers in one body and as events."""

import functools
import operator

import pytest

from tests.doubles.triton_stream import said
from tests.unit.gateway.conftest import QUESTION, STATISTICS, greeting, running


def asked(gateway, **fields):
    """Return the inputs that the model gets for a chat with these fields."""
    assert gateway.chat(**fields).status == 200
    return gateway.triton.asked[-1][1]


def test_answer_in_one_body(shared):
    """It has the text, the numbers of tokens, and the acceptance in vLLM's form."""
    answer = shared.chat()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    body = answer.json
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"]) == ("chat.completion", "specdec")
    message = {"role": "assistant", "content": "Grüße", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    assert body["choices"] == [choice]
    assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
    assert body["metrics"]["speculative_decoding"]["num_spec_steps"] == 2


def test_answer_as_events(shared):
    """The role comes first, then pieces of text, then the reason of the end with the acceptance."""
    answer = shared.chat(stream=True)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    *events, done = answer.events
    assert done == "[DONE]"
    assert {each["object"] for each in events} == {"chat.completion.chunk"}
    assert len({each["id"] for each in events}) == 1
    assert not any("usage" in each for each in events)
    deltas = [each["choices"][0]["delta"] for each in events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [each.get("content") for each in deltas[1:]] == ["Grü", "ße", None]
    reasons = [each["choices"][0]["finish_reason"] for each in events]
    assert reasons == [None] * 3 + ["stop"]
    assert events[-1]["metrics"]["speculative_decoding"]["mean_acceptance_length"] == 1.5


def test_events_with_usage(shared):
    """One more event has no choice but the numbers of tokens; the others say null."""
    *events, usage, _ = shared.chat(stream=True, stream_options={"include_usage": True}).events
    assert all(each["usage"] is None for each in events)
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 11
    assert usage["metrics"]["speculative_decoding"]["num_spec_steps"] == 2


def test_several_answers():
    """Answer i has seed + i; the prompt counts once."""

    def answer(inputs):
        number = inputs["seed"] - 5
        yield said(f"a{number}", [1])
        yield 0.05 * (2 - number)
        end = {"finish_reason": "stop", "num_input_tokens": 7, "num_output_tokens": 2}
        yield said(f"b{number}", [2], **end)

    with running(answer) as gateway:
        body = gateway.chat(n=3, seed=5).json
        texts = [each["message"]["content"] for each in body["choices"]]
        assert texts == ["a0b0", "a1b1", "a2b2"]
        assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}
        assert body["metrics"] == {"speculative_decoding": None}
        *events, _ = gateway.chat(n=3, seed=5, stream=True).events
        by_index = {0: "", 1: "", 2: ""}
        for event in events:
            choice = event["choices"][0]
            by_index[choice["index"]] += choice["delta"].get("content", "")
        assert list(by_index.values()) == texts
        assert [each.get("metrics") for each in events].count(None) == len(events) - 1


def test_defaults_are_openais(shared):
    """Without fields, the temperature is 1, and the answer may fill the context."""
    inputs = asked(shared)
    assert inputs == {
        "messages": '[{"role": "user", "content": "hi"}]',
        "max_tokens": -1,
        "stream": False,
        "temperature": 1.0,
        "return_perf_metrics": True,
    }


@pytest.mark.parametrize(
    ("field", "value", "name", "expected"),
    [
        ("max_tokens", 5, "max_tokens", 5),
        ("max_completion_tokens", 5, "max_tokens", 5),
        ("temperature", 0, "temperature", 0.0),
        ("top_p", 0, "top_p", 0.0),
        ("top_k", 3, "top_k", 3),
        ("min_p", 0.5, "min_p", 0.5),
        ("presence_penalty", -1.5, "presence_penalty", -1.5),
        ("frequency_penalty", 2, "frequency_penalty", 2.0),
        ("repetition_penalty", 1.5, "repetition_penalty", 1.5),
        ("seed", 2**63, "seed", 2**63),
        ("seed", -1, "seed", 2**64 - 1),
        ("stop", "x", "stop_words", ["x"]),
        ("stop", ["x", "y"], "stop_words", ["x", "y"]),
        ("bad_words", ["x"], "bad_words", ["x"]),
        ("logit_bias", {"5": -100}, "logit_bias", '{"5": -100.0}'),
        ("min_tokens", 3, "min_tokens", 3),
        ("drafter", "lookup", "drafter", "lookup"),
        ("num_draft_tokens", 0, "num_draft_tokens", 0),
        ("verification", "exact", "verification", "exact"),
        ("task", "sql", "task", "sql"),
        ("deadline_ms", 900, "deadline_ms", 900),
        ("stop_token_ids", [3, 4], "stop_token_ids", [3, 4]),
        ("ignore_eos", True, "ignore_eos", True),
        ("skip_special_tokens", False, "skip_special_tokens", False),
        ("return_token_ids", True, "return_prompt_token_ids", True),
        ("logprobs", True, "return_log_probs", True),
        ("add_generation_prompt", False, "add_generation_prompt", False),
        ("continue_final_message", True, "continue_final_message", True),
        ("prediction", {"type": "content", "content": "x"}, "prediction", "x"),
    ],
)
def test_field_reaches_the_model(shared, field, value, name, expected):
    """Each field that is served becomes the input of the same meaning."""
    assert asked(shared, **{field: value})[name] == expected


def test_vllms_value_for_no_limit_is_left_out(shared):
    """vLLM writes a `top_k` of -1 for it."""
    assert "top_k" not in asked(shared, top_k=-1)


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": False, "top_logprobs": 0, "store": False, "modalities": ["text"]},
        {"service_tier": "auto", "tools": [], "tool_choice": "none", "parallel_tool_calls": True},
        {"response_format": {"type": "text"}, "reasoning_effort": "none", "verbosity": "medium"},
        {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k"},
        {"stop": None, "logit_bias": None, "n": None, "stream": None, "seed": None},
    ],
)
def test_values_that_ask_for_nothing_change_nothing(shared, fields):
    """Clients and frameworks send them with every request."""
    assert asked(shared, **fields) == asked(shared)


def test_text_parts_are_joined(shared):
    """Parts of a message are joined by line breaks, as in vLLM; names stay."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": parts, "name": "n"}]
    expected = '[{"role": "developer", "content": "a\\nb", "name": "n"}]'
    assert asked(shared, messages=messages)["messages"] == expected


def test_prediction_tokens_are_reported():
    """They have OpenAI's names."""

    def answer(_inputs):
        yield said(
            "x",
            [1],
            finish_reason="length",
            num_input_tokens=1,
            num_output_tokens=1,
            accepted_prediction_tokens=3,
            rejected_prediction_tokens=2,
            speculative_decoding=STATISTICS,
        )

    with running(answer) as gateway:
        usage = gateway.chat(prediction={"type": "content", "content": "x"}).json["usage"]
    assert usage["completion_tokens_details"] == {
        "accepted_prediction_tokens": 3,
        "rejected_prediction_tokens": 2,
    }


def with_tokens(_inputs):
    """Answer with two tokens that are one character, and the prompt's tokens."""
    yield said("", [5], num_input_tokens=2) | {
        "prompt_token_ids": [8, 9],
        "output_log_probs": [-0.5],
        "output_token_bytes": ["c3"],
    }
    end = {"finish_reason": "stop", "num_input_tokens": 2, "num_output_tokens": 2}
    yield said("é", [6], **end) | {"output_log_probs": [-0.25], "output_token_bytes": ["a9"]}


def test_log_probabilities_of_tokens():
    """Each token has its bytes, because it may be a part of a character."""
    expected = [
        {"token": "\ufffd", "logprob": -0.5, "bytes": [0xC3], "top_logprobs": []},
        {"token": "\ufffd", "logprob": -0.25, "bytes": [0xA9], "top_logprobs": []},
    ]
    with running(with_tokens) as gateway:
        choice = gateway.chat(logprobs=True).json["choices"][0]
        assert choice["logprobs"]["content"] == expected
        *events, _ = gateway.chat(logprobs=True, stream=True).events
        found = [each["choices"][0]["logprobs"] for each in events]
        assert [each for part in found if part for each in part["content"]] == expected
        fields = {"model": "specdec", "prompt": "x", "logprobs": 0}
        found = gateway.ask("/v1/completions", fields).json["choices"][0]["logprobs"]
        assert found["token_logprobs"] == [-0.5, -0.25]
        assert found["text_offset"] == [0, 1]


def test_token_ids_in_vllms_form():
    """Those of the prompt are beside the choices, in streams with the first event."""
    with running(with_tokens) as gateway:
        body = gateway.chat(return_token_ids=True).json
        assert (body["prompt_token_ids"], body["choices"][0]["token_ids"]) == ([8, 9], [5, 6])
        *events, _ = gateway.chat(return_token_ids=True, stream=True).events
        assert [each.get("prompt_token_ids") for each in events][:2] == [[8, 9], None]
        ids = [each["choices"][0].get("token_ids", []) for each in events]
        assert functools.reduce(operator.iadd, ids, []) == [5, 6]


def test_usage_so_far():
    """vLLM's option for load generators: every event has the numbers of tokens."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    with running(with_tokens) as gateway:
        *events, _ = gateway.chat(stream=True, stream_options=options).events
    numbers = [
        (each["usage"]["prompt_tokens"], each["usage"]["completion_tokens"]) for each in events
    ]
    assert numbers == [(2, 1), (2, 2), (2, 2), (2, 2)]


def test_model_names_are_aliases():
    """Each name stands for a model of Triton."""
    with running(greeting, models={"gpt": "specdec", "other": "specdec_8b"}) as gateway:
        assert gateway.chat(model="other").json["model"] == "other"
        assert gateway.triton.asked[-1][0] == "specdec_8b"
        listed = gateway.ask("/v1/models").json
        assert [each["id"] for each in listed["data"]] == ["gpt", "other"]
        assert gateway.ask("/v1/models/gpt").json["root"] == "specdec"
        assert gateway.ask(body=QUESTION).error["code"] == "model_not_found"
