"""From logits to a drawn token, compared with transformers and with the expected frequencies."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from transformers.generation import logits_process as hf

from specdec.acceptance import warping
from specdec.acceptance.chance import SeededChance
from specdec.acceptance.noise import gumbel
from specdec.acceptance.rules import RULES
from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.acceptance.trees import verify_tree_by_rejection
from specdec.acceptance.warping import warp
from specdec.errors import EngineFailedError, InvalidRequestError
from specdec.serving.request.request import MAX_REPETITION_PENALTY, MIN_REPETITION_PENALTY
from specdec.torch_engine.sampler import distribution_of, draw_token

VOCAB = 40
END_ID = 3
TEXT = np.asarray([7, 8, 9, 7, 7, 11, 12], dtype=np.int32)
NUM_PROMPT = 3


def draw(text=TEXT, **params):
    """Return the draw after `text`, whose first NUM_PROMPT tokens are the prompt."""
    return Draw(SamplingParams(**params), text, NUM_PROMPT, END_ID)


def some_logits(seed=0, size=VOCAB):
    """Return random logits [size] float32."""
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3


@settings(max_examples=200)
@given(
    seed=st.integers(0, 1000),
    temperature=st.floats(0.25, 4.0, width=32),
    top_k=st.sampled_from([0, *range(2, VOCAB + 5)]),
    top_p=st.floats(0.0625, 1.0, width=32),
    min_p=st.floats(0.0, 0.5, width=32),
    repetition_penalty=st.floats(0.5, 2.0, width=32),
)
def test_warping_is_that_of_transformers(
    seed, temperature, top_k, top_p, min_p, repetition_penalty
):
    """The steps have the same order: the same tokens stay possible, with the same logits."""
    logits = some_logits(seed)
    ids = torch.from_numpy(TEXT.astype(np.int64))[None]
    steps = [hf.RepetitionPenaltyLogitsProcessor(repetition_penalty)]
    steps.append(hf.TemperatureLogitsWarper(temperature))
    if top_k:
        steps.append(hf.TopKLogitsWarper(top_k))
    if top_p < 1.0:
        steps.append(hf.TopPLogitsWarper(top_p))
    if min_p > 0.0:
        steps.append(hf.MinPLogitsWarper(min_p))
    expected = logits[None].clone()
    for step in steps:
        expected = step(ids, expected)

    warped = warp(
        logits.clone(),
        draw(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        ),
    )

    differ = torch.isinf(warped) != torch.isinf(expected[0])
    # At the very edge of the nucleus, float32 sums in another order may decide differently.
    assert differ.sum() <= 1
    both = ~torch.isinf(warped) & ~torch.isinf(expected[0])
    assert torch.allclose(warped[both], expected[0][both], rtol=1e-6)


def test_presence_and_frequency_penalties_count_only_the_output():
    """Presence counts once, frequency for each occurrence, and tokens of the prompt not at all."""
    logits = some_logits()

    warped = warp(logits.clone(), draw(presence_penalty=0.5, frequency_penalty=0.25))

    change = (logits - warped).tolist()
    assert change[7] == pytest.approx(0.5 + 2 * 0.25)
    assert change[11] == change[12] == pytest.approx(0.75)
    assert change[8] == change[9] == 0.0


def test_end_token_waits_for_min_tokens():
    """It is impossible until `min_tokens` tokens were generated, and unchanged from then on."""
    for min_tokens, is_banned in ((4, False), (5, True)):
        warped = warp(some_logits(), draw(min_tokens=min_tokens))
        assert torch.isinf(warped[END_ID]) == is_banned


def test_bad_words_cannot_be_completed():
    """Only the last token of a word is banned, and only if the rest of it ends the text."""
    words = ((5,), (11, 12, 6), (12, 13), (8, 14), (1, 2, 3, 7, 8, 9, 7, 7, 11, 12, 20))

    warped = warp(some_logits(), draw(bad_words=words))

    assert torch.nonzero(torch.isinf(warped)).ravel().tolist() == [5, 6, 13]


def test_bias_is_added_before_everything_else():
    """The repetition penalty then applies to the biased logit."""
    plain = some_logits()

    warped = warp(some_logits(), draw(logit_bias=((3, 50.0), (11, 4.0), (4, -100.0))))

    change = warped - plain
    assert change[3] == pytest.approx(50.0)
    assert change[4] == pytest.approx(-100.0)
    assert torch.count_nonzero(change) == 3
    doubled = draw(logit_bias=((11, 100.0),), repetition_penalty=2.0)
    assert warp(some_logits(), doubled)[11] == pytest.approx((float(plain[11]) + 100.0) / 2)


def test_noise_is_a_function_of_seed_position_and_token():
    """It is the same for every vocabulary size, and different for other seeds and positions."""
    long = gumbel(11, 5, 1000)

    assert torch.equal(gumbel(11, 5, 333), long[:333])
    assert torch.equal(gumbel(11, 5, 1000), long)
    for other in (gumbel(12, 5, 1000), gumbel(11, 6, 1000), gumbel(5, 11, 1000)):
        assert (other == long).sum() <= 1
    assert torch.isfinite(gumbel(2**64 - 1, 2**31, 49152)).all()


@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.7}, {"top_p": 0.8}, {"top_k": 3}, {"min_p": 0.1}],
    ids=["plain", "temperature", "top_p", "top_k", "min_p"],
)
def test_draws_follow_the_distribution(params):
    """10,000 positions of one seed, each drawn once, give the frequencies of the softmax."""
    logits, params = some_logits(4, size=12), {"temperature": 1.0, "seed": 99} | params
    distribution = torch.softmax(warp(logits.clone(), draw(**params)).double(), dim=0).numpy()
    text = np.zeros(10_000, dtype=np.int32)

    counts = np.zeros(12)
    for position in range(len(text)):
        one = Draw(SamplingParams(**params), text[:position], 0)
        counts[draw_token(logits.clone(), one).token] += 1

    possible = distribution > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], distribution[possible] * len(text)).pvalue > 1e-4


def test_log_probability_is_the_models_own():
    """It is that of the unwarped distribution, whatever the sampling parameters are."""
    logits = some_logits(6)
    params = SamplingParams(temperature=0.5, top_k=4, repetition_penalty=1.3, seed=5)

    choice = draw_token(logits.clone(), Draw(params, TEXT, NUM_PROMPT, END_ID, True))

    expected = torch.log_softmax(logits, dim=0)[choice.token]
    assert choice.log_prob(choice.token) == pytest.approx(float(expected), abs=1e-5)


EDGES = {
    "temperature": (0.0, 1e-6, 1e-5, 1.0, 10.0),
    "top_k": (0, 1, 2, VOCAB, 2**31 - 1),
    "top_p": (1e-45, 1e-38, 0.5, 1.0 - 2**-24, 1.0),
    "min_p": (0.0, 1e-45, 0.5, 1.0),
    "repetition_penalty": (MIN_REPETITION_PENALTY, 1.0, MAX_REPETITION_PENALTY),
    "presence_penalty": (-2.0, 0.0, 2.0),
    "frequency_penalty": (-2.0, 0.0, 2.0),
    "min_tokens": (0, 100),
    "logit_bias": ((), ((7, 100.0), (8, -100.0)), tuple((n, -100.0) for n in range(VOCAB))),
}
SCALES = (0.0, 1e-30, 1.0, 1e3)
"""Factors for the random logits; real logits stay below a few hundred."""


@settings(max_examples=600)
@given(
    values=st.fixed_dictionaries({name: st.sampled_from(each) for name, each in EDGES.items()}),
    scale=st.sampled_from(SCALES),
    seed=st.integers(0, 50),
)
def test_edges_of_all_ranges_give_a_valid_distribution(values, scale, seed):
    """It is finite, sums to 1 and gives a token of the vocabulary; each rule can verify with it.

    The draft's distribution is missing, the target's, another one, or without the draft token.
    """
    one = draw(**values, seed=seed)
    logits = some_logits(seed) * scale

    chosen = draw_token(logits.clone(), replace(one, keeps_logits=True))

    distribution = distribution_of(chosen.logits)
    assert 0 <= chosen.token < VOCAB
    assert np.isfinite(distribution).all()
    assert distribution.sum() == pytest.approx(1.0)
    if not one.params.is_greedy:
        assert distribution[chosen.token] > 0.0
        other = distribution_of(some_logits(seed + 1))
        impossible = np.where(np.arange(VOCAB) == chosen.token, 0.0, other)
        for draft_probs, rule in product(
            (None, distribution, other, impossible), (*RULES.values(), as_tree)
        ):
            distributions = None if draft_probs is None else [draft_probs]
            verdict = rule(
                [chosen.token], distributions, [distribution, distribution], SeededChance(seed, 5)
            )
            assert all(0 <= token < VOCAB for token in verdict.tokens)
            assert 1 <= len(verdict.tokens) <= 2


def as_tree(draft, draft_distributions, target_distributions, chance):
    """Verify a chain as a tree with one path."""
    parents = range(-1, len(draft) - 1)
    return verify_tree_by_rejection(
        draft, parents, draft_distributions, target_distributions, chance
    )


@settings(max_examples=300)
@given(data=st.data())
def test_rules_never_leave_the_vocabulary(data):
    """The distributions have many zeros and tiny numbers; draft tokens may have probability 0."""
    sizes = st.sampled_from([0.0, 5e-324, 1e-300, 1e-17, 0.5, 1.0])
    weights = st.lists(sizes, min_size=4, max_size=4).filter(lambda each: sum(each) > 1e-20)

    def some_distribution():
        distribution = np.asarray(data.draw(weights))
        return distribution / distribution.sum()

    num_drafts = data.draw(st.integers(1, 3))
    draft = data.draw(st.lists(st.integers(0, 3), min_size=num_drafts, max_size=num_drafts))
    target_distributions = [some_distribution() for _ in range(num_drafts + 1)]
    draft_distributions = [
        data.draw(st.sampled_from([some_distribution(), distribution]))
        for distribution in target_distributions[:-1]
    ]

    with np.errstate(over="ignore"):
        for rule, distributions in product((*RULES.values(), as_tree), (None, draft_distributions)):
            for seed in range(5):
                verdict = rule(draft, distributions, target_distributions, SeededChance(seed, 5))
                assert all(0 <= token < 4 for token in verdict.tokens)
                assert verdict.tokens[:-1] == tuple(draft[: verdict.num_accepted])


@pytest.mark.parametrize("weights", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_weights_that_are_no_distribution_are_refused(weights):
    """A search in their cumulative sums would return a token outside the vocabulary."""
    with pytest.raises(ValueError, match="no token can be drawn"):
        SeededChance(1, 5).draw(weights)


@pytest.mark.parametrize("top_p", [0.9, 1.0])
def test_faults_of_model_and_request_are_told_apart(top_p):
    """NaN logits are the engine's fault; a penalty that overflows is the request's."""
    params = SamplingParams(temperature=1.0, top_p=top_p, repetition_penalty=1e-44)
    overflowing = Draw(params, np.arange(VOCAB, dtype=np.int32), NUM_PROMPT)
    broken = some_logits()
    broken[3] = float("nan")

    with pytest.raises(InvalidRequestError, match="penalties overflow"):
        draw_token(some_logits(), overflowing)
    with pytest.raises(EngineFailedError, match="not finite"):
        draw_token(broken, draw(temperature=1.0, top_p=top_p))


def test_bias_is_prepared_once_for_all_rows_of_a_request():
    """To prepare thousands of entries again for each row would delay every other stream."""
    params = SamplingParams(logit_bias=tuple((token, 1.0) for token in range(VOCAB)))
    before = warping._bias_tensors.cache_info().misses
    for length in range(3, 9):
        row = torch.zeros(VOCAB)
        warp(row, Draw(params, np.arange(length, dtype=np.int32), NUM_PROMPT))
        assert row.tolist() == [1.0] * VOCAB
    assert warping._bias_tensors.cache_info().misses == before + 1
