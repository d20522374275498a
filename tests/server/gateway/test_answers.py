"""Answers through the gateway, with OpenAI's own client, are those of the model."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from specdec.clients import GenerationRequest, GrpcClient
from specdec.loadtest.load.prompts import load_prompts
from specdec.loadtest.load.settings import SHIPPED_PROMPTS
from tests.server.support.gateways import gateway_of
from tests.server.support.live import num_inflight
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

DRAFTERS = ("none", "lookup", "draft", "eagle3", "eagle3_tree", "auto")
QUESTIONS = [each.turns[0] for each in load_prompts(SHIPPED_PROMPTS)][:2]
WITHIN_S = 10.0


@pytest.fixture(scope="module")
def gateway(server, tmp_path_factory):
    """Return a gateway in front of the server, with two workers."""
    log = tmp_path_factory.mktemp("gateway") / "log"
    with gateway_of(server, log, "--workers", "2", "--model", "small=specdec") as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway):
    """Return OpenAI's client; it does not repeat requests that fail."""
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def chat(question, **more):
    """Return the arguments of a chat."""
    messages = [{"role": "user", "content": question}]
    return {"model": "small", "messages": messages, "max_tokens": 24} | more


def streamed(chunks):
    """Return text, finish reason and usage of a stream."""
    text, reason, usage = "", None, None
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
        usage = chunk.usage or usage
    return text, reason, usage


def test_text_is_the_targets_with_every_drafter(server, client):
    """In one body and streamed, with the same numbers of tokens and the same reason of the end."""
    temperature = 0.8
    with GrpcClient(server.grpc_url, timeout_s=120.0) as direct:
        for question in QUESTIONS:
            given = {"temperature": temperature, "seed": 7}
            expected = direct.generate(
                GenerationRequest(
                    messages=[{"role": "user", "content": question}],
                    max_tokens=24,
                    num_draft_tokens=0,
                    **given,
                )
            )
            end = expected.end
            for drafter in DRAFTERS:
                asked = chat(question, **given, extra_body={"drafter": drafter})
                whole = client.chat.completions.create(**asked)
                options = {"include_usage": True}
                stream = client.chat.completions.create(
                    **asked, stream=True, stream_options=options
                )
                found = whole.choices[0].message.content, whole.choices[0].finish_reason
                assert found == (expected.text, end.finish_reason)
                text, reason, usage = streamed(stream)
                assert (text, reason) == found
                assert usage == whole.usage
                numbers = usage.prompt_tokens, usage.completion_tokens
                assert numbers == (end.num_input_tokens, end.num_output_tokens)


def test_acceptance_comes_in_vllms_form(client):
    """It says what was drafted for this request."""
    asked = chat("Repeat: the ship sails at noon.", extra_body={"drafter": "eagle3"}, temperature=0)
    found = client.chat.completions.create(**asked).metrics["speculative_decoding"]
    assert found["num_spec_steps"] > 0
    assert sum(found["acceptance_histogram"]) == found["num_spec_steps"]


def test_answers_with_seeds_are_those_of_single_requests(client):
    """Answer i of a request with `n` is the one with seed + i."""
    many = client.chat.completions.create(**chat(QUESTIONS[0], n=3, seed=11))
    for number, choice in enumerate(many.choices):
        one = client.chat.completions.create(**chat(QUESTIONS[0], seed=11 + number))
        assert choice.message.content == one.choices[0].message.content


def test_completions_of_texts_and_tokens(client):
    """A text and its tokens have the same completion; `echo` puts the prompt first."""
    given = {"model": "small", "max_tokens": 12, "temperature": 0}
    prompt = "The three longest rivers are"
    text = client.completions.create(prompt=prompt, **given).choices[0].text
    assert client.completions.create(prompt=prompt, echo=True, **given).choices[0].text == (
        prompt + text
    )
    parts = [
        each.choices[0].text
        for each in client.completions.create(prompt=prompt, stream=True, **given)
    ]
    assert "".join(parts) == text


def test_asynchronous_client(gateway):
    """Many requests over one connection pool."""

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:

            async def one(number):
                asked = chat(f"Name {number} rivers.", stream=True, temperature=0)
                chunks = await client.chat.completions.create(**asked)
                return [chunk async for chunk in chunks][-1].choices[0].finish_reason

            return await asyncio.gather(*map(one, range(2, 10)))

    assert set(asyncio.run(ask())) <= {"stop", "length"}


def test_no_max_tokens_means_as_many_as_fit(client):
    """The answer ends by itself, not after the model's default of 256 tokens."""
    asked = chat("Say yes.", temperature=0)
    del asked["max_tokens"]
    assert client.chat.completions.create(**asked).choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"max_tokens": 99_999}, openai.BadRequestError, "messages"),
        ({"temperature": 11}, openai.BadRequestError, "temperature"),
        ({"stop": ["x" * 300]}, openai.BadRequestError, "stop[0]"),
        ({"logit_bias": {"99999999": 1}}, openai.BadRequestError, "logit_bias"),
        ({"extra_body": {"drafter": "other"}}, openai.BadRequestError, "drafter"),
        ({"extra_body": {"deadline_ms": 1}, "max_tokens": 4000}, openai.APIStatusError, None),
        ({"model": "other"}, openai.NotFoundError, "model"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_openais(client, fields, kind, param, stream):
    """The client raises the class of the status, with the field that is wrong."""
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**chat(COUNT, **fields, stream=stream))
    assert caught.value.param == param
    assert caught.value.status_code == (408 if param is None else caught.value.status_code)


@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_frees_the_slot(server, gateway, client, stream):
    """Within a round, whether the answer streams or not."""
    asked = chat(COUNT, max_tokens=4000, temperature=0)
    if stream:
        chunks = client.chat.completions.create(**asked, stream=True)
        next(iter(chunks))
        wait_for(lambda: num_inflight(server) == 1, WITHIN_S)
        chunks.close()
    else:
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.5).chat.completions.create(**asked)
    wait_for(lambda: num_inflight(server) == 0, WITHIN_S)
    wait_for(lambda: gateway.metric("specdec_gateway_running_requests") == 1, WITHIN_S)


def test_overload_is_refused_with_a_hint(server, client):
    """More requests than slots get 429 at once, and the others their answers."""

    def ask(number):
        try:
            asked = chat(f"{COUNT} {number}", max_tokens=30, temperature=0)
            return client.chat.completions.create(**asked).choices[0].finish_reason
        except openai.RateLimitError as error:
            return error.response.headers["retry-after"]

    with ThreadPoolExecutor(80) as pool:
        found = list(pool.map(ask, range(80)))
    assert set(found) <= {"length", "stop", "1"}
    # A tenant has at least three quarters of the 64 slots, also the one without a name.
    assert 80 - 64 <= found.count("1") <= 80 - 48
    wait_for(lambda: num_inflight(server) == 0, WITHIN_S)
