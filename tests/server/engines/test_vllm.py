"""vLLM's CPU build as the target, with our drafters inside, behind a live tritonserver."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from specdec.launch.triton_server import TritonServer
from tests.server.support.live import metrics, num_inflight
from tests.waiting import wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

COPY = "Repeat this text three times: the quick brown fox jumps over the lazy dog again and again."
QUESTION = [{"role": "user", "content": COPY}]
WITHIN_S = 20.0
NUM_REQUESTS, NUM_HANG_UPS = 60, 18


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return a server whose environment has vLLM; VLLM_PYTHON names its Python."""
    python, directory = Path(os.environ["VLLM_PYTHON"]).absolute(), tmp_path_factory.mktemp("vllm")
    repository = directory / "repository"
    command = [str(python), "-m", "specdec", "build", "render", "smollm2_135m_vllm"]
    subprocess.run([*command, "--output", str(repository)], check=True)
    log = directory / "server.log"
    with TritonServer(repository, log_path=log, python=python, ready_timeout_s=500.0) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    """Return a client of the server."""
    with GrpcClient(server.grpc_url, timeout_s=300.0) as found:
        yield found


def request(**fields):
    """Return a request for a text that copies its prompt."""
    given = {"messages": QUESTION, "max_tokens": 48, "return_perf_metrics": True} | fields
    return GenerationRequest(**given)


def lengths(result):
    """Return the draft lengths of the answer's rounds."""
    figures = result.end.speculative_decoding
    return {int(each) for each in figures["acceptance_histogram_by_draft_length"]}


def test_each_request_of_a_batch_gets_what_it_asks_for(client):
    """Sixteen at once, each with another drafter or length."""
    drafters = ("lookup", "suffix", "eagle3", "lookup+eagle3")
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
        if drafter == "eagle3" and k:
            assert max(lengths(result)) == k


def test_sources_add_up_to_the_counts(client):
    """`output_sources` shows the same accepted tokens as the counts."""
    result = client.generate(request(drafter="lookup+eagle3"))
    figures = result.end.speculative_decoding
    assert result.end.num_output_tokens == len(result.token_ids)
    assert sum(source > 0 for source in result.sources) == figures["num_accepted_draft_tokens"] > 0
    assert result.end.total_draft_tokens == figures["num_draft_tokens"]


def test_sampling_parameters_reach_vllm(client):
    """A seed gives the same text again; bans, `min_tokens` and log-probabilities hold."""
    sampled = {"temperature": 0.8, "top_p": 0.9, "seed": 7, "drafter": "none"}
    first, again = (client.generate(request(**sampled)) for _ in range(2))
    assert first.token_ids == again.token_ids
    assert "fox" in first.text
    assert "fox" not in client.generate(request(**sampled, bad_words=["fox"])).text
    assert client.generate(request(temperature=0.5, drafter="lookup")).end.verification == (
        "rejection"
    )
    long = client.generate(request(min_tokens=40, return_log_probs=True))
    assert len(long.token_ids) >= 40
    assert len(long.log_probs) == len(long.token_ids)
    assert all(value <= 0 for value in long.log_probs)
    stopped = client.generate(request(stop_words=["fox"]))
    assert stopped.end.finish_reason == "stop"
    assert "fox" not in stopped.text


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"min_p": 0.1, "temperature": 1.0}, "min_p"),
        ({"logit_bias": {5: 1.0}}, "logit_bias"),
        ({"verification": "block"}, "block"),
        ({"drafter": "vote"}, "vote"),
        ({"drafter": "eagle3_tree"}, "eagle3_tree"),
    ],
)
def test_what_vllm_cannot_do_is_refused_by_name(client, fields, name):
    """The error has the type `unsupported`, and no traceback."""
    with pytest.raises(SpecdecError, match=name) as refused:
        client.generate(request(**fields))
    assert refused.value.error_type == "unsupported"
    assert "Traceback" not in str(refused.value)


def test_hang_ups_leave_nothing_and_hurt_nobody(server, client):
    """Almost a third of the clients go away after the first response; the others get all."""

    def ask(number):
        if number % NUM_REQUESTS >= NUM_HANG_UPS:
            return len(client.generate(request(max_tokens=16, min_tokens=16)).token_ids)
        chunks = client.stream(request(max_tokens=1000, stream=True))
        next(chunks)
        chunks.close()
        return None

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(NUM_REQUESTS)))
    assert found.count(16) == NUM_REQUESTS - NUM_HANG_UPS
    wait_for(lambda: num_inflight(server) == 0, WITHIN_S)


def test_metrics_show_drafters_and_tasks(server, client):
    """Acceptance by task and drafter is counted, as with our own engine."""
    for _ in range(2):
        client.generate(request(task="copying", drafter="lookup"))
    for name in ("specdec_num_draft_tokens_total", "specdec_num_accepted_tokens_total"):
        assert metrics(server)[name, ("drafter=lookup", "task=copying")] > 0
