"""The verification of drafts by compiled engines, which share no sampler with the draft engine."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.acceptance.warping import warp
from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from specdec.serving.text.tokenizing import Tokenizer
from tests.server.support.doors import Door
from tests.server.support.live import MODEL_REPOSITORY, is_idle, raw_client, tensor
from tests.waiting import wait_for

pytestmark = pytest.mark.engines("compiled")

CERTAIN = "As a result, it is important"
UNCERTAIN = f"{CERTAIN} to"
"""CERTAIN and the only token that the requests of these tests can draw after it. They draw it in
the first round, which has no draft; in the second round many tokens are possible."""
NUM_DRAWS = 480
RARE = 5
SIGNIFICANT = 1e-4
PROMPT = "Once upon a time there was a ship. Once upon a time there was a"


def ask(server, model, **fields):
    """Return an answer of the orchestrator `model`.

    `bare` assumes no extensions of its engines, and drafts ahead.
    """
    defaults = {"text_input": PROMPT, "max_tokens": 24, "seed": 3, "return_perf_metrics": True}
    with GrpcClient(server.grpc_url, model_name=model) as client:
        return client.generate(GenerationRequest(**defaults | fields))


def test_sampled_request_is_verified_by_rejection(server):
    """With draft logits, sampled drafts are verified in mode `rejection`, and some are accepted."""
    answer = ask(server, "specdec", temperature=0.5, num_draft_tokens=3, max_tokens=48)

    assert answer.end.verification == "rejection"
    assert answer.end.total_accepted_draft_tokens > 0


@pytest.mark.parametrize("drafter", ["lookup", "suffix"])
def test_drafters_without_logits_do_not_draft_sampled_text(server, drafter):
    """The request runs without speculation and reports verification `off`."""
    answer = ask(server, "specdec", temperature=0.5, drafter=drafter)

    assert answer.end.verification == "off"
    assert answer.end.total_draft_tokens == 0


def test_sampled_request_without_draft_logits_runs_without_speculation(server):
    """No lossless verification is possible, so the answer is the target's own."""
    answer = ask(server, "bare", temperature=0.8)

    assert answer.end.verification == "off"
    assert answer.token_ids == ask(server, "specdec", temperature=0.8, drafter="none").token_ids


@pytest.mark.parametrize("model", ["specdec", "bare"])
def test_greedy_speculation_is_exact_everywhere(server, model):
    """Greedy answers equal those without speculation, and some draft tokens are accepted.

    Drafting ahead, as `bare` does, fails no draft call and leaves no work.
    """
    door = Door(server, model)
    num_failures = door.gauge("draft_failures_total")
    off = ask(server, model, num_draft_tokens=0)
    for drafter in ("draft", "tree", "vote", "lookup+draft", "auto"):
        on = ask(server, model, drafter=drafter, num_draft_tokens=3)

        assert on.token_ids == off.token_ids
        assert on.end.verification == "exact"
        assert on.end.total_accepted_draft_tokens > 0
    assert door.gauge("draft_failures_total") == num_failures
    wait_for(lambda: is_idle(server))


@pytest.mark.parametrize("drafter", ["tree", "vote", "auto"])
def test_rejection_uses_only_the_draft_engine_of_several_drafters(server, drafter):
    """With `tree`, `vote` and `auto` only the draft engine drafts: its tokens have logits."""
    answer = ask(
        server, "specdec", temperature=0.5, drafter=drafter, max_tokens=48, num_draft_tokens=2
    )

    assert answer.end.verification == "rejection"
    assert set(answer.end.speculative_decoding["drafters"]) == {"draft"}


def test_parameters_of_the_contract_reach_compiled_engines(server):
    """Bias, bans, penalties and min_tokens take effect through NVIDIA's tensors."""
    fields = {"logit_bias": {28: -100}, "bad_words": ["ship"], "min_tokens": 20}
    fields |= {"repetition_penalty": 1.2, "frequency_penalty": 0.5}

    off = ask(server, "bare", num_draft_tokens=0, **fields)

    assert 28 not in off.token_ids
    assert "ship" not in off.text
    assert len(off.token_ids) >= 20


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("specdec", {"temperature": 0.5, "verification": "exact"}),
        ("specdec", {"temperature": 0.5, "verification": "block"}),
        ("bare", {"temperature": 0.5, "verification": "rejection"}),
        ("bare", {"temperature": 0.5, "min_p": 0.1}),
    ],
)
def test_modes_and_parameters_that_these_engines_lack_are_refused(server, model, fields):
    """The error is `unsupported` and names the value; nothing is replaced silently."""
    with pytest.raises(SpecdecError, match=r"0\.1|exact|block|rejection") as caught:
        ask(server, model, **fields)

    assert caught.value.error_type == "unsupported"


def test_rejection_keeps_the_targets_distribution(server):
    """The tokens of 480 requests at one position follow the target's distribution (χ² test).

    The position is in a round with a draft. The distribution is the softmax of the target's logits,
    warped by the request's temperature and top_p. Rare tokens are counted together.
    """
    sampling = SamplingParams(temperature=0.8, top_p=0.9)
    prompt = Tokenizer(MODEL_REPOSITORY / "target/1/checkpoint").plain(UNCERTAIN)
    with raw_client(server) as raw:
        inputs = {
            "input_ids": prompt[None],
            "input_lengths": tensor(len(prompt)),
            "request_output_len": tensor(1),
            "return_generation_logits": tensor(True),
        }
        (response,) = raw.infer("target", inputs)
    logits = torch.from_numpy(response.outputs["generation_logits"][0, 0, 0, :49152].copy())
    law = torch.softmax(warp(logits, Draw(sampling, prompt, 0)).double(), dim=0).numpy()

    def drafted(seed):
        fields = {"temperature": 0.8, "top_p": 0.9, "drafter": "draft", "seed": seed}
        request = GenerationRequest(
            text_input=CERTAIN, max_tokens=3, return_perf_metrics=True, **fields
        )
        answer = client.generate(request)
        assert answer.end.verification == "rejection"
        assert answer.token_ids[0] == prompt[-1]
        return answer.token_ids[1], answer.end.total_accepted_draft_tokens

    with GrpcClient(server.grpc_url) as client, ThreadPoolExecutor(16) as threads:
        tokens, accepted = zip(*threads.map(drafted, range(NUM_DRAWS)), strict=True)

    # Some drafts were accepted and some rejected, so both ways to a token were tested.
    assert 0.1 < sum(accepted) / NUM_DRAWS < 0.9
    seen = np.bincount(tokens, minlength=len(law))
    assert not seen[law == 0].any()
    common = law * NUM_DRAWS >= RARE
    observed = [*seen[common], seen[~common].sum()]
    expected = [*law[common] * NUM_DRAWS, law[~common].sum() * NUM_DRAWS]
    assert len(observed) > 5
    assert chisquare(observed, expected).pvalue > SIGNIFICANT
