"""A head in the target changes no token, however bad its draft tokens are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec.clients import GenerationRequest, GrpcClient
from specdec.launch.triton_server import TritonServer
from tests.server.support.untrained import UNTRAINED, repository_with_untrained_head

# All tests use the same fixtures, or pytest would start the Medusa head's server twice.
pytestmark = pytest.mark.usefixtures("server")

PROMPTS = [
    "Tell me about a ship. Then tell me the same story again.",
    "Write a Python function that reverses a list, and explain it.",
]
WAYS = [
    {"drafter": UNTRAINED},
    {"drafter": UNTRAINED, "num_draft_tokens": 6},
    {"drafter": f"{UNTRAINED}_tree"},
    {"drafter": "auto"},
    {"drafter": f"lookup+{UNTRAINED}"},
    {"drafter": f"lookup+{UNTRAINED}_tree", "num_draft_tokens": 5},
    {"drafter": "draft"},
]


@pytest.fixture(scope="module", params=["medusa", "colocated eagle3"])
def headed(request, tmp_path_factory):
    """Return a server whose target has an untrained head: Medusa, or EAGLE-3 that is colocated.

    The default pair of other tests has an EAGLE-3 head that is not colocated.
    """
    if request.param != "medusa":
        yield request.getfixturevalue("colocated")
        return
    directory = tmp_path_factory.mktemp("medusa")
    repository = repository_with_untrained_head(directory, "medusa")
    with TritonServer(repository, log_path=directory / "server.log") as running:
        yield running


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.7, "top_p": 0.9, "seed": 3}], ids=["greedy", "nucleus"]
)
def test_head_changes_no_token(server, headed, sampling):
    """The text is the same with the head, its tree, the head beside copy drafters, and without."""
    with GrpcClient(server.grpc_url) as plain, GrpcClient(headed.grpc_url) as client:
        for prompt in PROMPTS:
            fields = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 16}
            expected = plain.generate(GenerationRequest(**fields, **sampling, drafter="none"))
            requests = [
                GenerationRequest(**fields, **sampling, **way, return_perf_metrics=True)
                for way in WAYS
            ]
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(client.generate, requests))
            for way, answer in zip(WAYS, answers, strict=True):
                assert answer.token_ids == expected.token_ids, way
                if way["drafter"] in {UNTRAINED, f"{UNTRAINED}_tree"}:
                    figures = answer.end.speculative_decoding
                    assert figures["drafters"][way["drafter"]]["num_draft_tokens"] > 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 4}], ids=["greedy", "T1"])
def test_tree_of_the_default_head_needs_no_more_rounds_than_its_chain(server, sampling):
    """Chain and tree both give the target's own text."""
    steps = {}
    with GrpcClient(server.grpc_url) as client:
        for drafter in ("none", "eagle3", "eagle3_tree"):
            request = GenerationRequest(
                messages=[{"role": "user", "content": PROMPTS[1]}],
                max_tokens=48,
                drafter=drafter,
                return_perf_metrics=True,
                **sampling,
            )
            answer = client.generate(request)
            figures = answer.end.speculative_decoding
            steps[drafter] = (answer.token_ids, figures["num_spec_steps"])

    assert steps["eagle3_tree"][0] == steps["eagle3"][0] == steps["none"][0]
    assert 0 < steps["eagle3_tree"][1] <= steps["eagle3"][1]


@pytest.mark.parametrize(
    ("drafter", "verification"),
    [(UNTRAINED, "rejection"), (f"{UNTRAINED}_tree", "rejection"), (f"{UNTRAINED}_tree", "block")],
)
def test_drafts_of_a_head_are_verified_by_rejection_or_block(headed, drafter, verification):
    """The answer reports the verification mode that the request names.

    A head's draft token counts as drawn with probability 1, as those of copy drafters. In mode
    `block`, which takes only chains, the head's tree becomes its chain.
    """
    with GrpcClient(headed.grpc_url) as client:
        request = GenerationRequest(
            text_input="The three longest rivers are",
            max_tokens=24,
            temperature=0.8,
            seed=5,
            drafter=drafter,
            verification=verification,
        )
        answer = client.generate(request)

    assert answer.end.verification == verification
    assert 0 < len(answer.token_ids) <= 24
