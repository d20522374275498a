"""Draft models with vLLM: vLLM's own inside it, and one of our engine beside it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec.builder.description.loading import pair_file
from specdec.clients import GenerationRequest, GrpcClient
from specdec.loadtest.lab.peers.weights import plain_pair
from tests.server.support.inside import VLLM_PAIR, inside_server
from tests.server.support.live import MODEL_REPOSITORY, metrics

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

QUESTION = [{"role": "user", "content": "Name the days of the week, and then repeat the list."}]
BESIDE = """
[drafts.draft]
model = "SmolLM2-135M-Instruct-draft"
licence = "Apache-2.0"
shape = "SmolLM2-135M-draft"
stored = "{stored}"

"""
INSIDE = """
[drafts.draft]
model = "SmolLM2-135M-Instruct-draft"
licence = "Apache-2.0"
checkpoint = "{plain}"
shape = {{ family = "smollm2", num_layers = 3, hidden_size = 576, intermediate_size = 1536, \
num_heads = 9, num_kv_heads = 3, head_dim = 64, num_tokens = 49152, vocab_size = 49152, \
max_position_embeddings = 8192 }}

[self_speculation]
mode = "draft_model"
num_draft_tokens = 3

"""
"""vLLM reads a draft model with all tokens only."""


def pair_beside(directory):
    """Return the default vLLM pair with our draft model beside it, and that model's name."""
    shipped = pair_file(VLLM_PAIR)
    stored = shipped.parent / "smollm2_135m"
    text = shipped.read_text().replace('"smollm2_135m/eagle3"', f'"{stored / "eagle3"}"')
    draft = BESIDE.format(stored=stored / "draft")
    file = directory / "beside.toml"
    text = text.replace("[self_speculation]", f"{draft}[self_speculation]")
    file.write_text(text.replace('drafters = ["lookup"', 'drafters = ["lookup", "draft"'))
    return file, "draft"


def pair_inside(directory):
    """Return the default vLLM pair with a draft model inside vLLM, and its name in requests."""
    text = pair_file(VLLM_PAIR).read_text()
    before, _, rest = text.partition("[self_speculation]")
    after = rest[rest.index("[limits]") :]
    draft = INSIDE.format(plain=plain_pair(MODEL_REPOSITORY, directory).draft)
    file = directory / "inside.toml"
    file.write_text(f"{before}{draft}{after}".replace('"eagle3"]', '"draft_model"]'))
    return file, "draft_model"


@pytest.fixture(scope="module", params=[pair_beside, pair_inside])
def served(request, tmp_path_factory):
    """Return a server, a client of it, and the draft model's name."""
    directory = tmp_path_factory.mktemp("draft")
    pair, name = request.param(directory)
    with (
        inside_server("vllm", directory, pair=str(pair)) as running,
        GrpcClient(running.grpc_url, timeout_s=300.0) as client,
    ):
        yield running, client, name


@pytest.mark.parametrize("k", [1, 3])
def test_request_gets_as_many_draft_tokens_as_it_asks_for(served, k):
    """The draft model proposes them, and the target confirms some."""
    _, client, name = served
    fields = {"messages": QUESTION, "max_tokens": 48, "return_perf_metrics": True}
    answer = client.generate(GenerationRequest(**fields, drafter=name, num_draft_tokens=k))
    figures = answer.end.speculative_decoding
    assert set(figures["drafters"]) == {name}
    assert max(map(int, figures["acceptance_histogram_by_draft_length"])) == k
    assert answer.end.total_accepted_draft_tokens > 0


def test_requests_with_different_drafters_share_the_batch(served):
    """All get all their tokens, each from its own drafter, and no drafter fails.

    A draft that comes too late is no fault here: it may on a busy machine.
    """
    running, client, name = served
    drafters = [name, "lookup", f"lookup+{name}", "auto", "none"] * 2

    def ask(drafter):
        fields = {"messages": QUESTION, "max_tokens": 32, "min_tokens": 32, "drafter": drafter}
        return client.generate(GenerationRequest(**fields, return_perf_metrics=True))

    with ThreadPoolExecutor(len(drafters)) as pool:
        answers = list(pool.map(ask, drafters))
    assert {len(each.token_ids) for each in answers} == {32}
    for drafter, answer in zip(drafters, answers, strict=True):
        used = set(answer.end.speculative_decoding["drafters"])
        if drafter == "none":
            assert not used
        elif drafter != "auto":
            assert used
            assert used <= set(drafter.split("+"))
    failures = metrics(running, "specdec_draft_failures")
    failed = {labels for (_, labels), count in failures.items() if count}
    assert not {labels for labels in failed if "reason=draft_timeout" not in labels}
