"""A head in the target changes no token, however bad its draft tokens are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from builder.heads import checkpoint, eagle3, medusa
from builder.repository.add_head import add_head
from builder.repository.colocate import colocate
from builder.repository.weights import WEIGHTS
from clients import GenerationRequest, GrpcClient
from loadtest.lab.kit.repository import with_drafts
from specdec.serving.launcher import TritonServer
from tests.server.live import MODEL_REPOSITORY

pytestmark = [
    pytest.mark.engines("torch"),  # compiled engines cannot run our heads
    # All tests use the same fixtures, or pytest would start each head's server twice.
    pytest.mark.usefixtures("server"),
]

TARGET = MODEL_REPOSITORY / "target" / WEIGHTS
PROMPTS = [
    "Tell me about a ship. Then tell me the same story again.",
    "Write a Python function that reverses a list, and explain it.",
]
DRAFT_IDS = torch.arange(4096)
NAME = "untrained"
WAYS = [
    {"drafter": NAME},
    {"drafter": NAME, "num_draft_tokens": 6},
    {"drafter": f"{NAME}_tree"},
    {"drafter": "auto"},
    {"drafter": f"lookup+{NAME}"},
    {"drafter": f"lookup+{NAME}_tree", "num_draft_tokens": 5},
    {"drafter": "draft"},
]


@pytest.fixture(scope="module", params=["eagle3", "medusa", "eagle3 colocated"])
def headed(request, tmp_path_factory):
    """Return a server whose target has an untrained head, whose draft tokens are mostly rejected.

    The head is an EAGLE-3 or a Medusa head; one EAGLE-3 head runs colocated.
    """
    directory = tmp_path_factory.mktemp("headed")
    torch.manual_seed(1)
    kind = request.param.split()[0]
    head = (
        eagle3.start(TARGET, DRAFT_IDS, train_head=False)
        if kind == "eagle3"
        else medusa.start(TARGET, DRAFT_IDS, 3, 1, train_head=False)
    )
    checkpoint.store(kind, head, TARGET, directory / "head", {})
    repository = with_drafts(MODEL_REPOSITORY, directory / "repository", [])
    # Remove the link to the head of the default pair.
    (repository / "target" / "1" / "head").unlink(missing_ok=True)
    add_head(repository, NAME, directory / "head")
    if "colocated" in request.param:
        colocate(repository, directory / "colocated")
        repository = directory / "colocated"
    with TritonServer(repository, log_path=directory / "server.log") as running:
        yield running


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.7, "top_p": 0.9, "seed": 3}], ids=["greedy", "nucleus"]
)
def test_head_changes_no_token(server, headed, sampling):
    """The text is the same with the head, its tree, the head beside copy drafters, and without."""
    with GrpcClient(server.grpc_url) as plain, GrpcClient(headed.grpc_url) as client:
        for prompt in PROMPTS:
            fields = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 24}
            expected = plain.generate(GenerationRequest(**fields, **sampling, drafter="none"))
            requests = [
                GenerationRequest(**fields, **sampling, **way, return_perf_metrics=True)
                for way in WAYS
            ]
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(client.generate, requests))
            for way, answer in zip(WAYS, answers, strict=True):
                assert answer.token_ids == expected.token_ids, way
                if way["drafter"] in {NAME, f"{NAME}_tree"}:
                    figures = answer.final.speculative_decoding
                    assert figures["drafters"][way["drafter"]]["num_draft_tokens"] > 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 4}], ids=["greedy", "T1"])
def test_tree_of_the_default_head_needs_no_more_rounds_than_its_chain(server, sampling):
    """Chain and tree both give the target's own text."""
    steps = {}
    with GrpcClient(server.grpc_url) as client:
        for drafter in ("none", "eagle3", "eagle3_tree"):
            request = GenerationRequest(
                messages=[{"role": "user", "content": PROMPTS[1]}],
                max_tokens=64,
                drafter=drafter,
                return_perf_metrics=True,
                **sampling,
            )
            answer = client.generate(request)
            figures = answer.final.speculative_decoding
            steps[drafter] = (answer.token_ids, figures["num_spec_steps"])

    assert steps["eagle3_tree"][0] == steps["eagle3"][0] == steps["none"][0]
    assert 0 < steps["eagle3_tree"][1] <= steps["eagle3"][1]


@pytest.mark.parametrize(
    ("drafter", "verification"),
    [(NAME, "rejection"), (f"{NAME}_tree", "rejection"), (f"{NAME}_tree", "block")],
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

    assert answer.final.verification == verification
    assert 0 < len(answer.token_ids) <= 24
