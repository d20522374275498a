"""The orchestrator works in front of an `llmapi` engine, which takes text and speculates inside.

`specdec build render` writes the repository. A double of TensorRT-LLM's `llmapi` model replaces
NVIDIA's.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from specdec.clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError, collect
from specdec.launch.triton_server import TritonServer
from specdec.serving.text.tokenizing import Tokenizer
from tests.doubles.repository import LLMAPI_MODEL, llmapi_repository
from tests.server.support.live import (
    MODEL_REPOSITORY,
    Failure,
    is_idle,
    metrics,
    num_inflight,
    raw_client,
)
from tests.server.support.orchestrators import add_orchestrator
from tests.server.support.prompts import CHATS, COUNT, PLAIN, REPEAT
from tests.waiting import wait_for

MAX_TOKENS = 16
WITHIN_S = 10.0
"""Longest wait in seconds for an end of work; an idle machine takes one second."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Return a server whose only engine is a double of the `llmapi` model.

    Its second orchestrator, `orphan`, names an engine that does not exist.
    """
    directory = tmp_path_factory.mktemp("llmapi")
    repository = llmapi_repository(directory)
    add_orchestrator(repository, "orphan", tensorrt_llm_model_name="nowhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECDEC_LLMAPI_MODEL", str(LLMAPI_MODEL))
        with TritonServer(repository, log_path=directory / "server.log") as server:
            yield server


@pytest.fixture(scope="module")
def client(running):
    """Return a gRPC client of the server."""
    with GrpcClient(running.grpc_url, timeout_s=120.0) as opened:
        yield opened


@pytest.fixture(scope="module")
def tokenizer():
    """Return the target's tokenizer."""
    return Tokenizer(MODEL_REPOSITORY / "target/1/checkpoint")


def inputs(text, **more):
    """Return inputs for the engine itself, whose tensors have no batch dimension."""
    values = {"text_input": text.encode(), "sampling_param_max_tokens": np.int32(MAX_TOKENS)}
    values |= {"sampling_param_exclude_input_from_output": True} | more
    kinds = {bool: np.bool_, bytes: np.object_}
    return {
        name: np.asarray([value], dtype=kinds.get(type(value), getattr(value, "dtype", None)))
        for name, value in values.items()
    }


def own_text(running, text):
    """Return the engine's own answer to a prompt, from a direct call without streaming."""
    with raw_client(running) as raw:
        (response,) = raw.infer("target", inputs(text), outputs=("text_output",))
    return response.outputs["text_output"].item().decode()


@pytest.mark.parametrize("prompt", [*PLAIN[:6], REPEAT])
def test_streamed_and_whole_answers_are_the_engines_text(running, client, tokenizer, prompt):
    """The tokens decode to the text, and the last response has their right number."""
    request = GenerationRequest(text_input=prompt, max_tokens=MAX_TOKENS)

    chunks = list(client.stream(request))
    streamed, whole = collect(chunks), client.generate(request)

    assert streamed.text == whole.text == own_text(running, prompt)
    assert len(chunks) > 1
    for answer in (streamed, whole):
        assert tokenizer.text(np.asarray(answer.token_ids)) == answer.text
        assert answer.end.num_output_tokens == len(answer.token_ids) <= MAX_TOKENS
        assert set(answer.sources) == {0}
        assert answer.end.verification == "engine"
    assert whole.end.num_input_tokens == len(tokenizer.plain(prompt))


def test_double_streams_the_text_from_its_beginning(running):
    """As in NVIDIA's model, each chunk of the double has the whole text so far.

    Only the last one has a finish reason.
    """
    options = {"streaming": True, "return_finish_reason": True}
    with raw_client(running) as raw:
        *responses, last = raw.infer(
            "target", inputs(REPEAT, **options), outputs=("text_output", "finish_reason")
        )

    texts = [each.outputs["text_output"].item() for each in (*responses, last)]
    assert len(texts) > 2
    assert all(later.startswith(text) for text, later in pairwise(texts))
    assert {each.outputs["finish_reason"].item() for each in responses} == {b"None"}
    assert last.outputs["finish_reason"].item() == b"length"


def test_messages_are_rendered_by_the_targets_template(client, tokenizer):
    """`messages` give the same answer as their rendered template does as plain text."""
    request = GenerationRequest(messages=CHATS[2], max_tokens=8)
    text = (
        "<|im_start|>system\nYou answer in one sentence.<|im_end|>\n"
        "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
    )

    by_messages = client.generate(request)

    by_text = client.generate(GenerationRequest(text_input=text, max_tokens=8))
    assert by_messages.text == by_text.text
    assert by_messages.end.num_input_tokens == by_text.end.num_input_tokens


def test_stop_words_end_the_answer_before_them(running, client):
    """The text ends before the stop word, although the word may be spread over several chunks.

    The orchestrator looks for stop words itself, and then stops the engine.
    """
    free = client.generate(GenerationRequest(text_input=COUNT, max_tokens=MAX_TOKENS))
    stop = free.text[len(free.text) // 2 :][:6]

    stopped = collect(
        client.stream(GenerationRequest(text_input=COUNT, max_tokens=4000, stop_words=["no", stop]))
    )

    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.end.finish_reason == "stop"
    wait_for(lambda: is_idle(running), WITHIN_S)


def test_prompt_comes_first_if_it_is_asked_for(client):
    """With exclude_input_in_output=false, the text begins with the prompt, once."""
    fields = {"text_input": COUNT, "max_tokens": 6}

    answer = client.generate(GenerationRequest(**fields, exclude_input_in_output=False))

    assert answer.text == COUNT + client.generate(GenerationRequest(**fields)).text


def test_seed_and_temperature_reach_the_engine(client):
    """A repeated seed gives the same text, other seeds other texts; a drawn seed is reported."""

    def ask(**fields):
        request = GenerationRequest(text_input=REPEAT, max_tokens=16, temperature=1.0, **fields)
        return client.generate(request)

    first = ask()

    assert ask(seed=first.end.seed).text == first.text
    assert len({ask(seed=seed).text for seed in range(4)}) == 4


def test_sixteen_streams_are_not_mixed_up(client):
    """Each of many answers, sixteen at a time, is the one that its prompt gets by itself."""
    prompts = [text for text in PLAIN if len(text) < 200] * 3
    requests = [GenerationRequest(text_input=text, max_tokens=16) for text in prompts]
    single_texts = {request.text_input: client.generate(request).text for request in requests[:7]}

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda each: collect(client.stream(each)), requests))

    assert [each.text for each in answers] == [single_texts[prompt] for prompt in prompts]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_hanging_up_ends_the_work_of_the_engine(running, protocol):
    """After the hang-up the slot is free and no processor time is used."""
    opened = (
        GrpcClient(running.grpc_url, timeout_s=120.0)
        if protocol == "grpc"
        else HttpClient(f"http://{running.http_url}", timeout_s=120.0)
    )
    with opened as client:
        chunks = client.stream(GenerationRequest(text_input=COUNT, max_tokens=4000))
        next(chunks)
        wait_for(lambda: num_inflight(running) == 1, WITHIN_S)

        chunks.close()

        wait_for(lambda: num_inflight(running) == 0, WITHIN_S)
        wait_for(lambda: is_idle(running), 3 * WITHIN_S)


def test_deadline_ends_the_work_of_the_engine(running, client):
    """A deadline ends a request that does not stream, and the engine stops."""
    start_s = time.monotonic()

    with pytest.raises(SpecdecError, match="deadline_ms is 700") as caught:
        client.generate(GenerationRequest(text_input=COUNT, max_tokens=4000, deadline_ms=700))

    assert caught.value.error_type == "deadline_exceeded"
    assert time.monotonic() - start_s < WITHIN_S
    wait_for(lambda: is_idle(running), 3 * WITHIN_S)


def test_engines_counts_are_the_metrics(running, client):
    """Response and metrics page have the engine's numbers of draft tokens and accepted tokens.

    The tokens per round are unknown, because the engine does not report its rounds.
    """
    labels = ("drafter=engine", "task=inside")
    request = GenerationRequest(
        text_input=REPEAT, max_tokens=32, task="inside", return_perf_metrics=True
    )

    final = client.generate(request).end

    assert final.total_draft_tokens > final.total_accepted_draft_tokens > 0
    rate = final.total_accepted_draft_tokens / final.total_draft_tokens
    assert final.acceptance_rate == pytest.approx(rate)
    assert final.speculative_decoding["mean_acceptance_length"] is None
    assert final.speculative_decoding["round_times"]["target_engine_s"] > 0
    expected = {
        ("specdec_num_draft_tokens_total", labels): final.total_draft_tokens,
        ("specdec_num_accepted_tokens_total", labels): final.total_accepted_draft_tokens,
        ("specdec_generation_tokens_total", labels[1:]): final.num_output_tokens,
    }
    wait_for(lambda: expected.items() <= metrics(running).items(), WITHIN_S)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"text_input": None, "input_ids": [5, 6]}, "input_ids"),
        ({"end_id": 3}, "end_id"),
        ({"num_draft_tokens": 0}, "num_draft_tokens"),
        ({"drafter": "lookup"}, "drafter"),
        ({"drafter": "none"}, "drafter"),
        ({"verification": "exact"}, "verification"),
        ({"prediction": "x"}, "prediction"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"return_log_probs": True}, "return_log_probs"),
        ({"temperature": 1.0, "min_p": 0.1}, "min_p"),
        ({"min_tokens": 2}, "min_tokens"),
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"logit_bias": {5: 1.0}}, "logit_bias"),
    ],
)
def test_fields_that_the_engine_cannot_take_are_refused(client, fields, named):
    """The error names the field; no field is dropped silently."""
    with pytest.raises(SpecdecError, match=f"cannot be told {named};") as caught:
        client.generate(GenerationRequest(**{"text_input": "x", "max_tokens": 4} | fields))

    assert caught.value.error_type == "unsupported"
    assert caught.value.status == "UNSUPPORTED"


def test_missing_engine_is_an_error_of_the_engine(running):
    """The client gets `engine_failed` with the name of the missing engine."""
    with (
        GrpcClient(running.grpc_url, model_name="orphan", timeout_s=60.0) as client,
        pytest.raises(SpecdecError, match="nowhere") as caught,
    ):
        client.generate(GenerationRequest(text_input="x", max_tokens=2))

    assert caught.value.error_type == "engine_failed"


def test_double_needs_an_id_to_stop_a_request(running):
    """As in NVIDIA's model, a stop without an id fails; the answer to any stop is an error."""
    with raw_client(running) as raw:
        with pytest.raises(Failure, match="A request id must be provided"):
            raw.infer("target", inputs("x", stop=True))
        with pytest.raises(Failure, match="Request cancelled by client"):
            raw.infer("target", inputs("x", stop=True), request_id="nobody")
