"""Checks of LangChain's `ChatOpenAI` and `OpenAI`."""

import asyncio
import functools
from typing import Literal

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

from tests.interop.clients.kit import check, equal, main, raised

# Base URL and key come from OPENAI_BASE_URL and OPENAI_API_KEY.
SETTINGS = {"model": "specdec", "temperature": 0, "max_retries": 0}


def chat_model(expected, **more):
    """Return the model of the greedy chat."""
    return ChatOpenAI(**SETTINGS | {"max_tokens": expected.max_tokens} | more)


def is_expected(message, answer):
    """Compare text and numbers of tokens of a message."""
    equal(message.content, answer.text)
    equal(message.usage_metadata["input_tokens"], answer.num_input_tokens)
    equal(message.usage_metadata["output_tokens"], answer.num_output_tokens)


@check
def invoke(expected):
    """Compare text, end and usage."""
    found = chat_model(expected).invoke(expected.question)
    is_expected(found, expected.chat)
    equal(found.response_metadata["finish_reason"], expected.chat.finish_reason)


@check
def stream_with_usage(expected):
    """Add the pieces of a stream; the sum has the usage too."""
    pieces = list(chat_model(expected, stream_usage=True).stream(expected.question))
    assert len(pieces) > 2
    total = pieces[0]
    for piece in pieces[1:]:
        total += piece
    is_expected(total, expected.chat)


@check
def ainvoke_and_astream(expected):
    """Ask with the asynchronous methods."""

    async def ask():
        model = chat_model(expected)
        whole = await model.ainvoke(expected.question)
        pieces = [each.content async for each in model.astream(expected.question)]
        return whole.content, "".join(pieces)

    equal(asyncio.run(ask()), (expected.chat.text,) * 2)


@check
def batch(expected):
    """Ask four times at once."""
    found = chat_model(expected).batch([expected.question] * 4)
    equal([each.content for each in found], [expected.chat.text] * 4)


@check
def chain_with_a_prompt_template(expected):
    """Run a chain of template, model and parser, with a system message and earlier turns."""
    turns = [SystemMessage("You answer briefly."), HumanMessage("Hello."), AIMessage("Hello!")]
    template = ChatPromptTemplate.from_messages([*turns, ("human", "{question}")])
    chain = template | chat_model(expected) | StrOutputParser()
    whole = chain.invoke({"question": expected.question})
    assert whole
    equal("".join(chain.stream({"question": expected.question})), whole)


@check
def logprobs(expected):
    """Bind `logprobs`, and join the tokens."""
    model = chat_model(expected).bind(logprobs=True, top_logprobs=2)
    found = model.invoke(expected.question)
    tokens = found.response_metadata["logprobs"]["content"]
    assert "".join(each["token"] for each in tokens).startswith(expected.chat.text)
    equal({len(each["top_logprobs"]) for each in tokens}, {2})


@check
def stop_and_several_answers(expected):
    """End before a word, and ask for two answers with a seed."""
    word = expected.chat.text.split()[3]
    found = chat_model(expected).invoke(expected.question, stop=[word])
    equal(found.content, expected.chat.text.partition(word)[0])
    many = chat_model(expected, n=2, seed=3, temperature=1).generate([[HumanMessage("Hello.")]])
    equal(len(many.generations[0]), 2)


@check
def extra_body(expected):
    """Name a drafter; one that does not exist is refused, so the field arrives."""
    model = chat_model(expected, extra_body={"drafter": "lookup"})
    equal(model.invoke(expected.question).content, expected.chat.text)
    wrong = chat_model(expected, extra_body={"drafter": "missing"})
    raised(openai.BadRequestError, lambda: wrong.invoke(expected.question))


@check
def errors(expected):
    """Get the classes of the package `openai`."""
    raised(openai.BadRequestError, lambda: chat_model(expected, temperature=11).invoke("Hello."))
    raised(openai.NotFoundError, lambda: chat_model(expected, model="other").invoke("Hello."))
    wrong = chat_model(expected, api_key="wrong")
    raised(openai.AuthenticationError, lambda: wrong.invoke("Hello."))
    hurried = chat_model(expected, timeout=0.2, max_tokens=2000)
    raised(openai.APITimeoutError, lambda: hurried.invoke("Count from 1 to 1000."))


@check
def class_for_a_full_context(expected):
    """Ask for more than the context, for which LangChain has a class of its own."""
    long = chat_model(expected, max_tokens=99_999)
    raised(ContextOverflowError, lambda: long.invoke("Hello."))


@check
def completions(expected):
    """Complete a text with `OpenAI`: in one body, streamed, two prompts at once."""
    model = OpenAI(**SETTINGS, max_tokens=expected.max_tokens)
    equal(model.invoke(expected.prompt), expected.completion.text)
    equal("".join(model.stream(expected.prompt)), expected.completion.text)
    found = model.generate([expected.prompt, expected.labelled_prompt])
    wanted = [expected.completion.text, expected.labelled.text]
    equal([each[0].text for each in found.generations], wanted)
    answers = expected.completion, expected.labelled
    total = sum(each.num_output_tokens for each in answers)
    equal(found.llm_output["token_usage"]["completion_tokens"], total)


@check
def tools(expected):
    """Bind a tool that must be called, streamed and in one body, and send its result."""

    def weather(city: Literal["Oslo", "Rome"]) -> str:
        """Tell the weather in a city."""
        return f"rain in {city}"

    model = chat_model(expected, max_tokens=100)
    required = model.bind_tools([weather], tool_choice="any", parallel_tool_calls=False)
    message = required.invoke("What is the weather in Oslo?")
    (call,) = message.tool_calls
    equal((call["name"], set(call["args"])), ("weather", {"city"}))
    pieces = iter(required.stream("What is the weather in Oslo?"))
    streamed = functools.reduce(lambda whole, piece: whole + piece, pieces)
    equal(streamed.tool_calls[0]["args"], call["args"])
    result = ToolMessage(weather(**call["args"]), tool_call_id=call["id"])
    turns = [HumanMessage("What is the weather in Oslo?"), message, result]
    assert model.bind_tools([weather]).invoke(turns).content


@check
def structured_output(expected):
    """Ask for an object of a class, by JSON schema."""

    class River(BaseModel):
        """A river."""

        name: Literal["Rhine", "Nile"]

    model = chat_model(expected).with_structured_output(River)
    assert isinstance(model.invoke(expected.question), River)


if __name__ == "__main__":
    main()
