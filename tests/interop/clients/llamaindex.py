"""Checks of LlamaIndex's `OpenAILike`."""

import asyncio
import os
from typing import Literal

import openai
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from tests.interop.clients.kit import check, equal, main, raised


def model(expected, **more):
    """Return the model of greedy chats; `is_chat_model` false makes it one of completions."""
    given = {
        "model": "specdec",
        "api_base": os.environ["OPENAI_BASE_URL"],
        "api_key": os.environ["OPENAI_API_KEY"],
        "is_chat_model": True,
        "context_window": 8192,
        "max_tokens": expected.max_tokens,
        "temperature": 0,
        "max_retries": 0,
    }
    return OpenAILike(**given | more)


def messages(expected):
    """Return the chat in LlamaIndex's form."""
    return [ChatMessage(role="user", content=expected.question)]


@check
def chat(expected):
    """Compare the text, and the usage in the raw answer."""
    found = model(expected).chat(messages(expected))
    equal(found.message.content, expected.chat.text)
    equal(found.raw.usage.completion_tokens, expected.chat.num_output_tokens)


@check
def stream_chat(expected):
    """Join the pieces of a stream; the last one has the whole text."""
    pieces = list(model(expected).stream_chat(messages(expected)))
    equal("".join(each.delta for each in pieces), expected.chat.text)
    equal(pieces[-1].message.content, expected.chat.text)


@check
def achat_and_astream_chat(expected):
    """Ask with the asynchronous methods."""

    async def ask():
        asked = model(expected)
        whole = await asked.achat(messages(expected))
        stream = await asked.astream_chat(messages(expected))
        pieces = [each.delta async for each in stream]
        return whole.message.content, "".join(pieces)

    equal(asyncio.run(ask()), (expected.chat.text,) * 2)


@check
def complete_by_a_chat(expected):
    """Ask a model of chats by `complete`, which sends the text as a user's message."""
    equal(model(expected).complete(expected.question).text, expected.chat.text)
    pieces = model(expected).stream_complete(expected.question)
    equal("".join(each.delta for each in pieces), expected.chat.text)


@check
def complete_and_stream_complete(expected):
    """Complete a text with a model of completions."""
    asked = model(expected, is_chat_model=False)
    equal(asked.complete(expected.prompt).text, expected.completion.text)
    pieces = list(asked.stream_complete(expected.prompt))
    equal("".join(each.delta for each in pieces), expected.completion.text)
    equal(pieces[-1].text, expected.completion.text)


@check
def acomplete_and_astream_complete(expected):
    """Complete a text with the asynchronous methods."""

    async def ask():
        asked = model(expected, is_chat_model=False)
        whole = await asked.acomplete(expected.prompt)
        stream = await asked.astream_complete(expected.prompt)
        return whole.text, "".join([each.delta async for each in stream])

    equal(asyncio.run(ask()), (expected.completion.text,) * 2)


@check
def logprobs(expected):
    """Ask for the likeliest tokens of a chat."""
    found = model(expected, logprobs=True, top_logprobs=2).chat(messages(expected))
    equal(found.message.content, expected.chat.text)
    assert len(found.logprobs) >= expected.chat.num_output_tokens - 1
    equal({len(each) for each in found.logprobs}, {2})


@check
def additional_kwargs(expected):
    """Give a seed and one of our own fields; a drafter that does not exist is refused."""
    more = {"seed": 4, "extra_body": {"drafter": "none"}}
    found = model(expected, additional_kwargs=more).chat(messages(expected))
    equal(found.message.content, expected.chat.text)
    wrong = model(expected, additional_kwargs={"extra_body": {"drafter": "missing"}})
    raised(openai.BadRequestError, lambda: wrong.chat(messages(expected)))


@check
def errors(expected):
    """Get the classes of the package `openai`."""
    asked = messages(expected)
    raised(openai.BadRequestError, lambda: model(expected, additional_kwargs={"n": 99}).chat(asked))
    raised(openai.NotFoundError, lambda: model(expected, model="other").chat(asked))
    wrong = model(expected, api_key="wrong")
    raised(openai.AuthenticationError, lambda: wrong.chat(asked))


@check
def tools(expected):
    """Require a call of a tool."""

    def weather(city: Literal["Oslo", "Rome"]) -> str:
        """Tell the weather in a city."""
        return f"rain in {city}"

    asked = model(expected, is_function_calling_model=True, max_tokens=100)
    tool = FunctionTool.from_defaults(weather)
    found = asked.chat_with_tools([tool], "Weather in Oslo?", tool_required=True)
    (call,) = asked.get_tool_calls_from_response(found)[:1]
    equal((call.tool_name, set(call.tool_kwargs)), ("weather", {"city"}))


if __name__ == "__main__":
    main()
