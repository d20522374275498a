"""Answers are the target's own, with and without speculation, and beside other requests.

They are compared, token by token, with a direct call of the model `target`.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from specdec.clients import GenerationRequest, GrpcClient
from specdec.serving.request.request import GenerationRequest as ParsedRequest
from specdec.serving.text.tokenizing import Tokenizer
from tests.server.support.live import MODEL_REPOSITORY, ask_http, raw_client, tensor
from tests.server.support.prompts import CHATS, PLAIN

EVERY_ENGINE = pytest.mark.engines("torch", "compiled", "inside")
MAX_TOKENS = 16
DRAFTERS = ("lookup", "draft", "auto")
KS = (1, 4, 8)
PROMPTS = [{"text_input": text} for text in PLAIN] + [{"messages": chat} for chat in CHATS]


@pytest.fixture(scope="module")
def client(server):
    """Return a gRPC client of the server."""
    with GrpcClient(server.grpc_url, timeout_s=240.0) as opened:
        yield opened


@pytest.fixture(scope="module")
def direct(server):
    """Return the tokens of the model `target` for each prompt, from one direct call each."""
    tokenizer = Tokenizer(MODEL_REPOSITORY / "target/1/checkpoint")
    answers = []
    with raw_client(server) as raw:
        for prompt in PROMPTS:
            ids = tokenizer.prompt(ParsedRequest(**prompt), max_seq_len=8192)
            inputs = {
                "input_ids": ids[None],
                "input_lengths": tensor(len(ids)),
                "request_output_len": tensor(MAX_TOKENS),
                "end_id": tensor(tokenizer.end_id),
                "exclude_input_in_output": tensor(True),
            }
            (response,) = raw.infer("target", inputs)
            answers.append(tuple(response.outputs["output_ids"].ravel().tolist()))
    return answers


@pytest.fixture(scope="module")
def speculated(client, direct):
    """Return (prompt number, drafter, k, answer) for each prompt and drafter, asked four at a time.

    k changes from one to the next, so that each drafter runs with each k.
    """
    ways = [
        (number, drafter, KS[(number + turn) % len(KS)])
        for number in range(len(PROMPTS))
        for turn, drafter in enumerate(DRAFTERS)
    ]
    options = {"max_tokens": MAX_TOKENS, "return_perf_metrics": True}

    def ask(way):
        number, drafter, k = way
        request = GenerationRequest(
            **PROMPTS[number], **options, drafter=drafter, num_draft_tokens=k
        )
        return (*way, client.generate(request))

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(ask, ways))


@EVERY_ENGINE
def test_answer_with_speculation_equals_the_target_called_directly(speculated, direct):
    """With each drafter and k in {1, 4, 8}, the client gets the target's own tokens."""
    wrong = [
        (number, drafter, k)
        for number, drafter, k, answer in speculated
        if answer.token_ids != direct[number]
    ]

    assert wrong == []


@pytest.fixture(scope="module")
def verification(server):
    """Return the verification mode of greedy answers with speculation."""
    inputs = ask_http("GET", f"http://{server.http_url}/v2/models/target").json()["inputs"]
    # An engine with our drafters inside verifies by its own rule.
    return "engine" if "drafting" in {each["name"] for each in inputs} else "exact"


@EVERY_ENGINE
def test_compared_answers_contain_accepted_draft_tokens(speculated, verification):
    """Each drafter drafted, up to k tokens a round, and some draft tokens were accepted."""
    totals = dict.fromkeys(DRAFTERS, 0)
    accepted = 0
    for _, drafter, k, answer in speculated:
        totals[drafter] += answer.end.total_draft_tokens
        accepted += answer.end.total_accepted_draft_tokens
        steps = answer.end.speculative_decoding["num_spec_steps"]
        assert answer.end.total_draft_tokens <= k * steps
        assert answer.end.verification == verification

    assert min(totals.values()) > 0
    assert accepted > 0


@EVERY_ENGINE
def test_answer_without_speculation_equals_the_target_called_directly(client, direct):
    """Without speculation the client gets the target's own tokens, all with source 0."""
    for number, prompt in enumerate(PROMPTS):
        request = GenerationRequest(**prompt, max_tokens=MAX_TOKENS, num_draft_tokens=0)
        answer = client.generate(request)
        assert answer.token_ids == direct[number]
        assert set(answer.sources) <= {0}
        assert answer.end.verification == "off"


@EVERY_ENGINE
def test_concurrent_requests_do_not_change_each_others_answers(client, direct):
    """Sixteen requests at a time, with several drafters or none, get the target's own tokens."""
    jobs = [
        (number, {"drafter": drafter} if drafter else {"num_draft_tokens": 0})
        for number in range(len(PROMPTS))
        for drafter in (("lookup", None) if number % 2 else ("draft", "auto"))
    ]
    np.random.default_rng(0).shuffle(jobs)

    def ask(job):
        number, options = job
        request = GenerationRequest(
            **PROMPTS[number], **options, max_tokens=MAX_TOKENS, request_id=f"side-{number}"
        )
        return tuple(token for chunk in client.stream(request) for token in chunk.token_ids)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, jobs))

    pairs = zip(jobs, answers, strict=True)
    assert [job for job, answer in pairs if answer != direct[job[0]]] == []
