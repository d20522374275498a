"""Engines with our drafters inside, behind a live tritonserver (support/inside.py)."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import psutil
import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from specdec.serving.text.tokenizing import Tokenizer
from tests.server.support.inside import ENGINES, inside_server
from tests.server.support.live import (
    MODEL_REPOSITORY,
    metrics,
    num_inflight,
    raw_client,
    tensor,
)
from tests.server.support.prompts import PLAIN
from tests.waiting import wait_for

COPY = "Repeat this text three times: the quick brown fox jumps over the lazy dog again and again."
QUESTION = [{"role": "user", "content": COPY}]
WITHIN_S = 20.0
RESTART_S = 300.0
NUM_REQUESTS = {"llmapi": 30, "vllm": 60}
"""Requests in the test of hang-ups. The double computes row by row, so it gets fewer."""
MODEL = {"llmapi": "draft", "vllm": "eagle3"}
"""Name of a drafter of each engine that is a model: a draft model, or vLLM's own head."""

SCHEMA = {
    "type": "object",
    "properties": {
        "animal": {"type": "string", "maxLength": 20},
        "jumps": {"type": "array", "items": {"enum": ["high", "far"]}, "maxItems": 3},
    },
    "required": ["animal", "jumps"],
    "additionalProperties": False,
}
GUIDE = {
    "guided_decoding_guide_type": "json_schema",
    "guided_decoding_guide": json.dumps(SCHEMA),
}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request):
    """Return the kind of the engine."""
    return request.param


@pytest.fixture(scope="module")
def running(engine, tmp_path_factory):
    """Return a server with such an engine."""
    with inside_server(engine, tmp_path_factory.mktemp(engine)) as started:
        yield started


@pytest.fixture(scope="module")
def client(running):
    """Return a client of the server."""
    with GrpcClient(running.grpc_url, timeout_s=300.0) as found:
        yield found


def request(**fields):
    """Return a request for a text that copies its prompt."""
    given = {"messages": QUESTION, "max_tokens": 48, "return_perf_metrics": True} | fields
    return GenerationRequest(**given)


def direct(text, max_tokens):
    """Return the inputs of a direct call of the model `target`."""
    tokenizer = Tokenizer(MODEL_REPOSITORY / "target/1/checkpoint")
    ids = tokenizer.plain(text)
    return {
        "input_ids": ids[None],
        "input_lengths": tensor(len(ids)),
        "request_output_len": tensor(max_tokens),
        "end_id": tensor(tokenizer.end_id),
        "exclude_input_in_output": tensor(True),
    }


def lengths(result):
    """Return the draft lengths of the answer's rounds."""
    figures = result.end.speculative_decoding
    return {int(each) for each in figures["acceptance_histogram_by_draft_length"]}


def test_each_request_of_a_batch_gets_what_it_asks_for(client, engine):
    """Sixteen at once, each with another drafter or length."""
    model = MODEL[engine]
    drafters = ("lookup", "suffix", model, f"lookup+{model}")
    asked = [(drafter, k) for drafter in drafters for k in (0, 1, 3, 8)]
    requests = [request(drafter=drafter, num_draft_tokens=k) for drafter, k in asked]
    with ThreadPoolExecutor(len(requests)) as pool:
        results = list(pool.map(client.generate, requests))
    for (drafter, k), result in zip(asked, results, strict=True):
        assert all(length <= k for length in lengths(result)), (drafter, k)
        used = set(result.end.speculative_decoding["drafters"])
        assert used <= set(drafter.split("+")), (drafter, k)
        assert bool(used) == (k > 0) or drafter == "suffix", (drafter, k)
        assert result.end.verification == ("engine" if k else "off")
        if drafter == model and k:
            assert max(lengths(result)) == k


def test_sources_add_up_to_the_counts(client, engine):
    """`output_sources` shows the same accepted tokens as the counts."""
    result = client.generate(request(drafter=f"lookup+{MODEL[engine]}"))
    figures = result.end.speculative_decoding
    assert result.end.num_output_tokens == len(result.token_ids)
    assert sum(source > 0 for source in result.sources) == figures["num_accepted_draft_tokens"] > 0
    assert result.end.total_draft_tokens == figures["num_draft_tokens"]


@pytest.mark.parametrize("drafter", ["lookup", "auto", "none"])
def test_answers_equal_the_target_called_directly(running, client, engine, drafter):
    """The double computes each row alone; what holds for vLLM is measured (docs/engines.md)."""
    if engine == "vllm":
        pytest.skip("it computes other bits for several rows")
    prompts = [text for text in PLAIN if len(text) < 200][:4]
    requests = [
        GenerationRequest(text_input=text, max_tokens=16, drafter=drafter) for text in prompts
    ]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(client.generate, requests))
    with raw_client(running) as raw:
        for text, answer in zip(prompts, answers, strict=True):
            (response,) = raw.infer("target", direct(text, 16))
            own = response.outputs["output_ids"].ravel()
            assert own.tolist() == list(answer.token_ids)


def test_seed_gives_the_same_text_again(client, engine):
    """The same seed repeats a sampled answer, without speculation."""
    if engine == "llmapi":
        pytest.skip("before 1.3, all requests to TensorRT-LLM draw from one generator")
    sampled = {"temperature": 0.8, "top_p": 0.9, "seed": 7, "drafter": "none"}
    first, again = (client.generate(request(**sampled)) for _ in range(2))
    assert first.token_ids == again.token_ids
    other = client.generate(request(**sampled | {"seed": 8}))
    assert other.token_ids != first.token_ids


def test_sampled_requests_get_drafts(client):
    """They are verified so that the distribution stays the target's."""
    result = client.generate(request(temperature=0.5, drafter="lookup"))
    assert result.end.verification == "rejection"
    assert result.end.speculative_decoding["num_draft_tokens"] > 0


def test_log_probabilities_and_stop_words(client):
    """Each token has its log-probability, and the text ends before a stop word."""
    answer = client.generate(request(return_log_probs=True))
    assert len(answer.log_probs) == len(answer.token_ids)
    assert all(value <= 0 for value in answer.log_probs)
    stopped = client.generate(request(stop_words=["fox"]))
    assert stopped.end.finish_reason == "stop"
    assert "fox" not in stopped.text


def test_bad_words_and_min_tokens_apply(client, engine):
    """vLLM takes both."""
    if engine != "vllm":
        pytest.skip("the Torch sampler has no bad words")
    seeds = [{"temperature": 0.5, "seed": seed, "drafter": "none"} for seed in range(4)]
    assert any("fox" in client.generate(request(**each)).text for each in seeds)
    for each in seeds:
        assert "fox" not in client.generate(request(**each, bad_words=["fox"])).text
    assert len(client.generate(request(min_tokens=40)).token_ids) >= 40


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_answers_follow_a_guide(client, engine, temperature):
    """With drafts too, of which the engine rejects what the guide forbids.

    A wrong guide has our error.
    """
    drafters = (*("none", "lookup", "suffix", "auto"), MODEL[engine])
    asked = [request(**GUIDE, temperature=temperature, drafter=each) for each in drafters]
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(client.generate, asked))
    for answer in answers:
        assert answer.end.finish_reason == "stop"
        jsonschema.validate(json.loads(answer.text), SCHEMA)
    wrong = GUIDE | {"guided_decoding_guide": '{"type": "x"}'}
    with pytest.raises(SpecdecError, match="guided_decoding_guide") as refused:
        client.generate(request(**wrong))
    assert refused.value.error_type == "invalid_request"


@pytest.mark.parametrize(
    ("fields", "name", "engines"),
    [
        ({"min_p": 0.1, "temperature": 1.0}, "min_p", ("vllm", "llmapi")),
        ({"logit_bias": {5: 1.0}}, "logit_bias", ("vllm",)),
        ({"bad_words": ["x"]}, "bad words", ("llmapi",)),
        ({"repetition_penalty": 1.2}, "repetition_penalty", ("llmapi",)),
        ({"verification": "block"}, "block", ("vllm", "llmapi")),
        ({"drafter": "vote"}, "vote", ("vllm", "llmapi")),
        (GUIDE | {"min_tokens": 5}, "min_tokens", ("vllm", "llmapi")),
    ],
)
def test_what_the_engine_cannot_do_is_refused_by_name(client, engine, fields, name, engines):
    """The error has the type `unsupported`, and no traceback."""
    if engine not in engines:
        pytest.skip("this engine can")
    with pytest.raises(SpecdecError, match=name) as refused:
        client.generate(request(**fields))
    assert refused.value.error_type == "unsupported"
    assert "Traceback" not in str(refused.value)


def test_tree_of_a_head_is_an_unknown_drafter(client, engine):
    """vLLM verifies no trees. The error names the drafters that there are."""
    with pytest.raises(SpecdecError, match=r"drafter must be one of .*given 'eagle3_tree'") as told:
        client.generate(request(drafter="eagle3_tree"))
    assert told.value.error_type == "invalid_request"


def test_hang_ups_leave_nothing_and_fail_no_other_request(running, client, engine):
    """Almost a third of the clients go away after the first response; the others get all."""
    num_requests = NUM_REQUESTS[engine]
    num_hang_ups = int(0.3 * num_requests)

    def ask(number):
        if number * num_hang_ups % num_requests >= num_hang_ups:
            return len(client.generate(request(max_tokens=16, min_tokens=16)).token_ids)
        chunks = client.stream(request(max_tokens=1000, stream=True))
        next(chunks)
        chunks.close()
        return None

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(num_requests)))
    assert found.count(16) == num_requests - num_hang_ups
    wait_for(lambda: num_inflight(running) == 0, WITHIN_S)


def test_metrics_show_drafters_and_tasks(running, client):
    """Acceptance by task and drafter is counted, as with our own engine."""
    for _ in range(2):
        client.generate(request(task="copying", drafter="lookup"))
    for name in ("specdec_num_draft_tokens_total", "specdec_num_accepted_tokens_total"):
        assert metrics(running)[name, ("drafter=lookup", "task=copying")] > 0


def test_use_of_the_kv_cache_is_shown_while_requests_run(running, client, engine):
    """Proxies spread requests by it; afterwards it falls to nothing."""
    if engine != "vllm":
        pytest.skip("TensorRT-LLM's LLM API does not report it")
    key = "specdec_kv_cache_usage", ()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.generate, request(max_tokens=200, min_tokens=200))
        wait_for(lambda: metrics(running).get(key, 0.0) > 0.0, WITHIN_S)
        answer.result()
    wait_for(lambda: metrics(running)[key] == 0.0, WITHIN_S)


@pytest.mark.parametrize("process", ["VLLM::Worker", "VLLM::EngineCore"])
def test_death_of_a_vllm_process_ends_requests_and_restarts_the_server(
    running, client, engine, process
):
    """Each request gets an error within seconds, and a new server answers."""
    if engine != "vllm":
        pytest.skip("the double has no processes of its own")
    long = request(max_tokens=1500, min_tokens=1500)
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(client.generate, long) for _ in range(4)]
        wait_for(lambda: num_inflight(running) == 4, WITHIN_S)
        (victim,) = (
            each
            for each in psutil.Process(running.pid).children(recursive=True)
            if each.name().startswith(process[:15])
        )
        died_s = time.monotonic()
        victim.send_signal(signal.SIGKILL)
        for stream in streams:
            with pytest.raises(SpecdecError) as told:
                stream.result(timeout=60)
            assert told.value.error_type == "engine_failed" or told.value.status == "UNAVAILABLE"
        assert time.monotonic() - died_s < WITHIN_S

    def answers():
        try:
            return bool(client.generate(request()).token_ids)
        except SpecdecError:
            return False

    wait_for(answers, RESTART_S)
