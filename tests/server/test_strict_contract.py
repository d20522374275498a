"""Compiled engines have no sampler in common: what is verified how, and what is not."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from clients import GenerationRequest, GrpcClient, SpecdecError
from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.acceptance.warping import warp
from specdec.serving.tokenizing import Tokenizer
from tests.server.live import MODEL_REPOSITORY, raw_client, tensor

pytestmark = pytest.mark.engines("compiled")

CERTAIN = "As a result, it is important"
UNCERTAIN = f"{CERTAIN} to"
"""The first round is the target's alone, and says one word here; the next one may say many."""
NUM_DRAWS = 480
RARE = 5
SIGNIFICANT = 1e-4
PROMPT = "Once upon a time there was a ship. Once upon a time there was a"


def ask(server, model, **fields):
    """Return one answer of a front door; `bare` knows of no draft logits."""
    defaults = {"text_input": PROMPT, "max_tokens": 24, "seed": 3, "return_perf_metrics": True}
    with GrpcClient(server.grpc_url, model_name=model) as client:
        return client.generate(GenerationRequest(**defaults | fields))


def test_sampled_request_is_verified_by_rejection(server):
    """With draft logits alone, as they are taken: by name, with accepted drafts."""
    answer = ask(server, "specdec", temperature=0.5, num_draft_tokens=3, max_tokens=48)

    assert answer.final.verification == "rejection"
    assert answer.final.total_accepted_draft_tokens > 0


@pytest.mark.parametrize("drafter", ["lookup", "suffix"])
def test_what_has_no_logits_does_not_draft_sampled_text(server, drafter):
    """It goes on without speculation, and says so."""
    answer = ask(server, "specdec", temperature=0.5, drafter=drafter)

    assert answer.final.verification == "off"
    assert answer.final.total_draft_tokens == 0


def test_sampled_request_runs_plainly_where_nothing_is_lossless(server):
    """Without draft logits the target alone: the text that it says to anyone."""
    answer = ask(server, "bare", temperature=0.8)

    assert answer.final.verification == "off"
    assert answer.token_ids == ask(server, "specdec", temperature=0.8, drafter="none").token_ids


@pytest.mark.parametrize("model", ["specdec", "bare"])
def test_greedy_speculation_is_exact_everywhere(server, model):
    """By equality, with drafts."""
    off = ask(server, model, num_draft_tokens=0)
    for drafter in ("draft", "tree", "vote", "lookup+draft", "auto"):
        on = ask(server, model, drafter=drafter, num_draft_tokens=3)

        assert on.token_ids == off.token_ids
        assert on.final.verification == "exact"
        assert on.final.total_accepted_draft_tokens > 0


@pytest.mark.parametrize("drafter", ["tree", "vote", "auto"])
def test_several_drafters_are_one_where_logits_judge(server, drafter):
    """The draft engine alone, which can say what it drew from, for whatever was asked."""
    answer = ask(
        server, "specdec", temperature=0.5, drafter=drafter, max_tokens=48, num_draft_tokens=2
    )

    assert answer.final.verification == "rejection"
    assert set(answer.final.speculative_decoding["drafters"]) == {"draft"}


def test_parameters_of_the_contract_reach_compiled_engines(server):
    """Bias, bans and penalties, in the tensors that such engines have."""
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
def test_what_such_engines_cannot_do_is_refused(server, model, fields):
    """By its type, with the value; nothing is silently something else."""
    with pytest.raises(SpecdecError, match=r"0\.1|exact|block|rejection") as caught:
        ask(server, model, **fields)

    assert caught.value.error_type == "unsupported"


def test_rejection_keeps_the_targets_law(server):
    """What many requests say in a drafted round, against the target's own law at that place.

    That is its logits, warped as the request says; what is rare is counted together.
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
        assert answer.final.verification == "rejection"
        assert answer.token_ids[0] == prompt[-1]
        return answer.token_ids[1], answer.final.total_accepted_draft_tokens

    with GrpcClient(server.grpc_url) as client, ThreadPoolExecutor(16) as threads:
        tokens, accepted = zip(*threads.map(drafted, range(NUM_DRAWS)), strict=True)

    # Neither were all guesses right nor none: both ways to a token were gone.
    assert 0.1 < sum(accepted) / NUM_DRAWS < 0.9
    seen = np.bincount(tokens, minlength=len(law))
    assert not seen[law == 0].any()
    common = law * NUM_DRAWS >= RARE
    observed = [*seen[common], seen[~common].sum()]
    expected = [*law[common] * NUM_DRAWS, law[~common].sum() * NUM_DRAWS]
    assert len(observed) > 5
    assert chisquare(observed, expected).pvalue > SIGNIFICANT
