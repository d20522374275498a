"""Checks of LiteLLM with the prefix `openai/`."""

import asyncio
import os

import litellm

from tests.interop.clients.kit import check, equal, main, raised

litellm.telemetry = False


def given(expected, **more):
    """Return the arguments of the greedy chat."""
    return {
        "model": "openai/specdec",
        "api_base": os.environ["OPENAI_BASE_URL"],
        "api_key": os.environ["OPENAI_API_KEY"],
        "messages": expected.messages,
        "max_tokens": expected.max_tokens,
        "temperature": 0,
        "num_retries": 0,
        **more,
    }


def text_given(expected, **more):
    """Return the arguments of the greedy completion."""
    asked = given(expected, model="text-completion-openai/specdec", prompt=expected.prompt, **more)
    del asked["messages"]
    return asked


def is_expected(usage, answer):
    """Compare the numbers of tokens."""
    equal(usage.prompt_tokens, answer.num_input_tokens)
    equal(usage.completion_tokens, answer.num_output_tokens)


@check
def completion(expected):
    """Compare text, end and usage of a chat."""
    found = litellm.completion(**given(expected))
    equal(found.choices[0].message.content, expected.chat.text)
    equal(found.choices[0].finish_reason, expected.chat.finish_reason)
    is_expected(found.usage, expected.chat)


@check
def stream_with_usage(expected):
    """Join the pieces of a stream, and let LiteLLM build the answer from them."""
    asked = given(expected, stream=True, stream_options={"include_usage": True})
    chunks = list(litellm.completion(**asked))
    text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
    equal(text, expected.chat.text)
    found = litellm.stream_chunk_builder(chunks, messages=expected.messages)
    equal(found.choices[0].message.content, expected.chat.text)
    is_expected(found.usage, expected.chat)


@check
def asynchronous(expected):
    """Ask four times at once, and once streamed."""

    async def ask():
        asked = given(expected)
        many = await asyncio.gather(*(litellm.acompletion(**asked) for _ in range(4)))
        chunks = await litellm.acompletion(**asked, stream=True)
        text = "".join([each.choices[0].delta.content or "" async for each in chunks])
        return [each.choices[0].message.content for each in many] + [text]

    equal(asyncio.run(ask()), [expected.chat.text] * 5)


@check
def batch_completion(expected):
    """Ask a list of chats."""
    asked = given(expected, messages=[expected.messages] * 3)
    found = litellm.batch_completion(**asked)
    equal([each.choices[0].message.content for each in found], [expected.chat.text] * 3)


@check
def text_completion(expected):
    """Complete a text, in one body and streamed."""
    found = litellm.text_completion(**text_given(expected))
    equal(found.choices[0].text, expected.completion.text)
    is_expected(found.usage, expected.completion)
    chunks = litellm.text_completion(**text_given(expected, stream=True))
    equal("".join(each.choices[0].text or "" for each in chunks), expected.completion.text)


@check
def router(expected):
    """Ask through LiteLLM's router, which names the model differently."""
    own = {name: given(expected)[name] for name in ("model", "api_base", "api_key")}
    asked = litellm.Router(model_list=[{"model_name": "small", "litellm_params": own}])
    found = asked.completion(
        model="small",
        messages=expected.messages,
        max_tokens=expected.max_tokens,
        temperature=0,
    )
    equal(found.choices[0].message.content, expected.chat.text)


@check
def prefix_hosted_vllm(expected):
    """Use the prefix `hosted_vllm/`, which passes vLLM's extra fields on."""
    found = litellm.completion(**given(expected, model="hosted_vllm/specdec", top_k=1))
    equal(found.choices[0].message.content, expected.chat.text)
    wrong = given(expected, model="hosted_vllm/specdec", top_k=-2)
    raised(litellm.BadRequestError, lambda: litellm.completion(**wrong))


@check
def logprobs_stop_and_several_answers(expected):
    """Use fields beside the usual ones."""
    found = litellm.completion(**given(expected, logprobs=True, top_logprobs=2)).choices[0]
    tokens = found.logprobs.content
    assert "".join(each.token for each in tokens).startswith(expected.chat.text)
    word = expected.chat.text.split()[3]
    found = litellm.completion(**given(expected, stop=[word])).choices[0]
    equal(found.message.content.rstrip(), expected.chat.text.partition(word)[0].rstrip())
    found = litellm.completion(**given(expected, n=2, seed=3))
    equal(len(found.choices), 2)


@check
def extra_body(expected):
    """Name a drafter; one that does not exist is refused, so the field arrives."""
    found = litellm.completion(**given(expected, extra_body={"drafter": "lookup"}))
    equal(found.choices[0].message.content, expected.chat.text)
    wrong = given(expected, extra_body={"drafter": "missing"})
    raised(litellm.BadRequestError, lambda: litellm.completion(**wrong))


@check
def errors(expected):
    """Get LiteLLM's class of each status."""
    for kind, more in (
        (litellm.BadRequestError, {"temperature": 11}),
        (litellm.NotFoundError, {"model": "openai/other"}),
        (litellm.AuthenticationError, {"api_key": "wrong"}),
        (litellm.Timeout, {"timeout": 0.2, "max_tokens": 4000}),
    ):
        raised(kind, lambda more=more: litellm.completion(**given(expected, **more)))


@check
def class_for_a_full_context(expected):
    """Ask for more than the context, for which LiteLLM has a class of its own."""
    asked = given(expected, max_tokens=99_999)
    raised(litellm.ContextWindowExceededError, lambda: litellm.completion(**asked))


@check
def tools(expected):
    """Require a call of a tool."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    function = {"name": "now", "parameters": schema}
    asked = given(expected, tools=[{"type": "function", "function": function}])
    found = litellm.completion(**asked, tool_choice="required", parallel_tool_calls=False)
    (call,) = found.choices[0].message.tool_calls
    equal((call.function.name, call.function.arguments), ("now", "{}"))


if __name__ == "__main__":
    main()
