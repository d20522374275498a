"""Checks of the package `openai`: errors, ends before the answer, and what is refused."""

import asyncio

import openai

from tests.interop.clients.kit import check, equal, limit, raised
from tests.interop.clients.openai_requests import CLIENT, MODEL, chat

LONG = "Count from 1 to 1000, one number on each line."
"""A question with an answer that takes much longer than a second."""


@check
def errors(expected):
    """Get the class of each status, with the field that is wrong."""
    ask = CLIENT.chat.completions.create
    error = raised(openai.BadRequestError, lambda: ask(**chat(expected, temperature=11)))
    equal((error.param, error.type), ("temperature", "invalid_request_error"))
    assert error.request_id
    long = [{"role": "user", "content": "word " * 9000}]
    error = raised(openai.BadRequestError, lambda: ask(**chat(expected, messages=long)))
    equal(error.code, "context_length_exceeded")
    error = raised(openai.NotFoundError, lambda: ask(**chat(expected, model="other")))
    equal(error.param, "model")
    raised(openai.NotFoundError, lambda: CLIENT.models.retrieve("other"))
    wrong = CLIENT.with_options(api_key="wrong")
    raised(openai.AuthenticationError, wrong.models.list)
    streamed = chat(expected, temperature=11, stream=True)
    raised(openai.BadRequestError, lambda: ask(**streamed))


@check
def timeout_and_cancel(expected):
    """Give up a whole answer, leave a stream, cancel a task; the next answer comes as usual."""
    asked = chat(expected, messages=[{"role": "user", "content": LONG}], max_tokens=4000)
    hurried = CLIENT.with_options(timeout=0.5)
    raised(openai.APITimeoutError, lambda: hurried.chat.completions.create(**asked))
    chunks = CLIENT.chat.completions.create(**asked, stream=True)
    next(iter(chunks))
    chunks.close()

    async def give_up():
        async with openai.AsyncOpenAI(max_retries=0) as client:
            await asyncio.wait_for(client.chat.completions.create(**asked), 0.5)

    raised(TimeoutError, lambda: asyncio.run(give_up()))
    found = CLIENT.chat.completions.create(**chat(expected))
    equal(found.choices[0].message.content, expected.chat.text)


@limit
def responses_api(expected):
    """Use the newer API, which the gateway does not have."""
    asked = {"model": MODEL, "input": expected.question}
    raised(openai.NotFoundError, lambda: CLIENT.responses.create(**asked))
