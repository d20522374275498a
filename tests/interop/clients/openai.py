"""Checks of the package `openai`: chats, completions, streams, and what goes with them."""

import asyncio
import json
from typing import Literal

import openai
from pydantic import BaseModel

from tests.interop.clients import openai_errors  # noqa: F401 (its import adds its checks)
from tests.interop.clients.kit import check, equal, main
from tests.interop.clients.openai_requests import CLIENT, MODEL, chat, completion


def is_expected(usage, answer):
    """Compare the numbers of tokens."""
    equal(usage.prompt_tokens, answer.num_input_tokens)
    equal(usage.completion_tokens, answer.num_output_tokens)


@check
def models(_expected):
    """List the models, and ask for one."""
    assert MODEL in [each.id for each in CLIENT.models.list()]
    equal(CLIENT.models.retrieve(MODEL).id, MODEL)


@check
def chat_in_one_body(expected):
    """Compare text, end and usage."""
    found = CLIENT.chat.completions.create(**chat(expected))
    equal(found.choices[0].message.content, expected.chat.text)
    equal(found.choices[0].finish_reason, expected.chat.finish_reason)
    is_expected(found.usage, expected.chat)


@check
def chat_stream_with_usage(expected):
    """Join the pieces of a stream, whose last event has the usage."""
    options = {"include_usage": True}
    asked = chat(expected, stream=True, stream_options=options)
    chunks = list(CLIENT.chat.completions.create(**asked))
    text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
    equal(text, expected.chat.text)
    equal(chunks[-1].choices, [])
    is_expected(chunks[-1].usage, expected.chat)
    equal([each.usage for each in chunks[:-1]], [None] * (len(chunks) - 1))


@check
def stream_helper(expected):
    """Read the events of `chat.completions.stream`, and the answer that it collects."""
    with CLIENT.chat.completions.stream(**chat(expected)) as stream:
        events = [each for each in stream if each.type in {"content.delta", "content.done"}]
        final = stream.get_final_completion()
    equal("".join(each.delta for each in events[:-1]), expected.chat.text)
    equal(events[-1].content, expected.chat.text)
    equal(final.choices[0].message.content, expected.chat.text)


@check
def asynchronous_client(expected):
    """Ask eight times at once, half of them streamed."""

    async def ask():
        async with openai.AsyncOpenAI(max_retries=0) as client:

            async def whole():
                found = await client.chat.completions.create(**chat(expected))
                return found.choices[0].message.content

            async def streamed():
                chunks = await client.chat.completions.create(**chat(expected, stream=True))
                return "".join([each.choices[0].delta.content or "" async for each in chunks])

            return await asyncio.gather(*(whole() for _ in range(4)), *(streamed() for _ in "abcd"))

    equal(asyncio.run(ask()), [expected.chat.text] * 8)


@check
def second_turn_with_the_message_of_the_first(expected):
    """Send an answer's message object back, as chat programs do, and parts instead of a text."""
    first = CLIENT.chat.completions.create(**chat(expected)).choices[0].message
    parts = [{"type": "text", "text": "Thank"}, {"type": "text", "text": "you."}]
    turns = [*expected.messages, first, {"role": "user", "content": parts}]
    second = CLIENT.chat.completions.create(**chat(expected, messages=turns))
    assert second.choices[0].message.content


class River(BaseModel):
    """The form of an answer."""

    name: Literal["Rhine", "Nile"]
    km: Literal[1230, 6650]


@check
def structured_output(expected):
    """Ask for an object of a class of pydantic."""
    asked = chat(expected, response_format=River)
    assert isinstance(CLIENT.chat.completions.parse(**asked).choices[0].message.parsed, River)


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@check
def tool_calls_and_their_results(expected):
    """Require a call, streamed and in one body; send it back with its result."""
    asked = chat(expected, tools=[WEATHER], tool_choice="required", max_tokens=200)
    asked |= {"parallel_tool_calls": False}
    message = CLIENT.chat.completions.create(**asked).choices[0].message
    (call,) = message.tool_calls
    assert set(json.loads(call.function.arguments)) == {"city"}
    with CLIENT.chat.completions.stream(**asked) as stream:
        streamed_message = stream.get_final_completion().choices[0].message
    (streamed,) = streamed_message.tool_calls
    equal(streamed.function.arguments, call.function.arguments)
    equal(streamed.function.parsed_arguments, json.loads(call.function.arguments))
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    for own, called in ((message, call), (streamed_message, streamed)):
        turns = [*expected.messages, own, result | {"tool_call_id": called.id}]
        answer = CLIENT.chat.completions.create(**chat(expected, messages=turns, tools=[WEATHER]))
        assert answer.choices[0].message.content


@check
def completion_in_one_body_and_streamed(expected):
    """Compare both texts, and the one with the prompt in front."""
    found = CLIENT.completions.create(**completion(expected))
    equal(found.choices[0].text, expected.completion.text)
    is_expected(found.usage, expected.completion)
    chunks = CLIENT.completions.create(**completion(expected, stream=True))
    equal("".join(each.choices[0].text for each in chunks), expected.completion.text)
    found = CLIENT.completions.create(**completion(expected, echo=True))
    equal(found.choices[0].text, expected.prompt + expected.completion.text)


@check
def several_prompts(expected):
    """Complete two prompts with one request."""
    prompts = [expected.prompt, expected.labelled_prompt]
    found = CLIENT.completions.create(**completion(expected, prompt=prompts))
    wanted = [expected.completion.text, expected.labelled.text]
    equal([each.text for each in found.choices], wanted)


@check
def several_answers_and_seed(expected):
    """Repeat a request with `n` and `seed`, which gives the same three answers."""
    asked = chat(expected, n=3, seed=5, temperature=1)
    first, second = (CLIENT.chat.completions.create(**asked) for _ in range(2))
    texts = [each.message.content for each in first.choices]
    equal(texts, [each.message.content for each in second.choices])
    equal(len(set(texts)), 3)


@check
def logprobs_of_a_chat(expected):
    """Join the bytes of the tokens; each token has three likeliest ones, itself the first."""
    found = CLIENT.chat.completions.create(**chat(expected, logprobs=True, top_logprobs=3))
    tokens = found.choices[0].logprobs.content
    text = b"".join(bytes(each.bytes) for each in tokens).decode()
    assert text.startswith(expected.chat.text)
    for each in tokens:
        equal(len(each.top_logprobs), 3)
        equal(each.top_logprobs[0].token, each.token)
        assert each.logprob <= 0


@check
def logprobs_of_a_stream_and_of_a_completion(expected):
    """Compare the tokens of a stream with its text, and those of a completion."""
    with CLIENT.chat.completions.stream(**chat(expected, logprobs=True)) as stream:
        final = stream.get_final_completion()
    text = b"".join(bytes(each.bytes) for each in final.choices[0].logprobs.content)
    assert text.decode().startswith(expected.chat.text)
    found = CLIENT.completions.create(**completion(expected, logprobs=2)).choices[0].logprobs
    assert "".join(found.tokens).startswith(expected.completion.text)
    equal(len(found.tokens), len(found.token_logprobs))
    equal(len(found.text_offset), len(found.top_logprobs))


@check
def prediction(expected):
    """Predict the answer itself; the text stays, and the usage counts the accepted tokens."""
    predicted = {"type": "content", "content": expected.chat.text}
    found = CLIENT.chat.completions.create(**chat(expected, prediction=predicted))
    equal(found.choices[0].message.content, expected.chat.text)
    return f"{found.usage.completion_tokens_details.accepted_prediction_tokens} tokens accepted"


@check
def stop(expected):
    """End before a word of the answer."""
    word = expected.chat.text.split()[3]
    found = CLIENT.chat.completions.create(**chat(expected, stop=[word])).choices[0]
    equal(found.finish_reason, "stop")
    equal(found.message.content, expected.chat.text.partition(word)[0])


@check
def raw_responses_and_request_ids(expected):
    """Read the header X-Request-Id: the server's own, and one that the client has sent."""
    asked = chat(expected)
    raw = CLIENT.chat.completions.with_raw_response.create(**asked)
    equal(raw.parse().choices[0].message.content, expected.chat.text)
    equal(raw.headers["x-request-id"], raw.parse()._request_id)
    sent = {"X-Request-Id": "mine-1"}
    equal(CLIENT.chat.completions.create(**asked, extra_headers=sent)._request_id, "mine-1")
    with CLIENT.chat.completions.with_streaming_response.create(**chat(expected)) as response:
        assert expected.chat.text in response.parse().choices[0].message.content


@check
def extra_fields(expected):
    """Name a drafter in `extra_body`, and read the acceptance in the answer."""
    asked = chat(expected, extra_body={"drafter": "eagle3"})
    found = CLIENT.chat.completions.create(**asked)
    equal(found.choices[0].message.content, expected.chat.text)
    assert found.metrics["speculative_decoding"]["num_draft_tokens"] > 0


if __name__ == "__main__":
    main()
