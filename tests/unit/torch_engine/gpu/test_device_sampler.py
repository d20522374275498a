"""Tests that drawing all tokens of a pass at once gives the tokens of drawing one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.acceptance.sampling import GREEDY, Draw, SamplingParams
from specdec.acceptance.warping import warp
from specdec.errors import EngineFailedError
from specdec.torch_engine.gpu.device_noise import DeviceNoise
from specdec.torch_engine.gpu.device_sampler import DeviceSampler
from specdec.torch_engine.sampler import draw_token

CPU = torch.device("cpu")
VOCAB = 300


class GivenLogits:
    """An output head for which hidden states are the logits."""

    def logits(self, hidden):
        return hidden.clone()

    def most_likely(self, hidden):
        return hidden.argmax(dim=-1)


SAMPLER = DeviceSampler(GivenLogits(), DeviceNoise(VOCAB, CPU, None))

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 40, 1000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    seed=st.integers(0, 2**64 - 1),
)


def draw_of(params, position=20, **more):
    """Return a Draw at `position`, of which the first 5 tokens are the prompt."""
    text = np.arange(position, dtype=np.int32)
    return Draw(params, text, num_prompt_tokens=5, **more)


def logits_of(count, seed, *, is_coarse=False):
    """Return random logits [count, VOCAB] float32; coarse ones have many equal values."""
    rows = torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    return rows.round() if is_coarse else rows


@given(st.lists(PARAMS, min_size=1, max_size=20), st.integers(0, 999), st.booleans())
@settings(max_examples=200)
def test_drawing_together_equals_drawing_one_by_one(params, seed, is_coarse):
    """This holds for any mix of temperatures and truncations, and for ties."""
    logits = logits_of(len(params), seed, is_coarse=is_coarse)
    draws = [draw_of(each, position=20 + n) for n, each in enumerate(params)]
    expected = [
        draw_token(row.clone(), draw).token for row, draw in zip(logits, draws, strict=True)
    ]

    assert SAMPLER.draw(logits, draws).tolist() == expected


@pytest.mark.parametrize("top_k", [0, 2, 40])
@pytest.mark.parametrize("top_p", [1.0, 0.5])
@pytest.mark.parametrize("min_p", [0.0, 0.2])
def test_truncations_are_applied_one_after_the_other(top_k, top_p, min_p):
    """Forty draws of each combination of top_k, top_p and min_p equal those made one by one."""
    params = SamplingParams(temperature=1.5, top_k=top_k, top_p=top_p, min_p=min_p, seed=8)
    logits = logits_of(40, 2)
    draws = [draw_of(params, 20 + n) for n in range(40)]
    expected = [
        draw_token(row.clone(), draw).token for row, draw in zip(logits, draws, strict=True)
    ]

    assert SAMPLER.draw(logits, draws).tolist() == expected


EDGES = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-6, 1e-5, 1.0, 10.0]),
    top_k=st.sampled_from([0, 1, 2, VOCAB, 2**31 - 1]),
    top_p=st.sampled_from([1e-45, 1e-38, 0.5, 1.0 - 2**-24, 1.0]),
    min_p=st.sampled_from([0.0, 1e-45, 0.5, 1.0]),
    seed=st.integers(0, 2**64 - 1),
)


@given(
    st.lists(EDGES, min_size=1, max_size=10),
    st.integers(0, 99),
    st.sampled_from([0.0, 1.0, 1e3]),
)
@settings(max_examples=300)
def test_extreme_parameters_draw_a_possible_token(params, seed, scale):
    """In each combination, each row draws a token that its own truncations have kept."""
    logits = logits_of(len(params), seed) * scale
    draws = [draw_of(each, position=20 + n) for n, each in enumerate(params)]

    tokens = SAMPLER.draw(logits, draws).tolist()

    for row, draw, token in zip(logits, draws, tokens, strict=True):
        assert 0 <= token < VOCAB
        assert warp(row.clone(), draw)[token] > -np.inf


def test_rows_that_are_not_finite_are_refused():
    """The largest of NaN logits would be an ordinary token id without any meaning."""
    logits = logits_of(2, 1)
    logits[1] = float("nan")
    chain = [draw_of(SamplingParams(temperature=1.0, seed=4))]

    assert SAMPLER.choose(logits[:1], [chain])
    with pytest.raises(EngineFailedError, match="not finite"):
        SAMPLER.choose(logits, [chain, [draw_of(GREEDY)]])


def test_truncation_changes_draws():
    """Truncated draws differ from plain ones; otherwise the tests above would prove nothing."""
    logits = logits_of(50, 1)
    plain = SamplingParams(temperature=2.0, seed=5)

    def tokens(params):
        return SAMPLER.draw(logits, [draw_of(params, 20 + n) for n in range(50)]).tolist()

    assert tokens(plain) != tokens(replace(plain, top_p=0.5))
    assert tokens(plain) != tokens(replace(plain, top_k=3))
    assert tokens(plain) != tokens(replace(plain, min_p=0.3))
    assert tokens(plain) != tokens(replace(plain, seed=6))


@pytest.mark.parametrize("wrong_at", [0, 1, 2, None])
def test_nothing_is_drawn_after_a_rejected_draft_token(wrong_at):
    """The choices after the first disagreement are -1, as those of the base class `Sampler`."""
    params = SamplingParams(temperature=1.0, seed=9)
    logits = logits_of(4, 7)
    right = SAMPLER.draw(logits, [draw_of(params, 20 + n) for n in range(4)]).tolist()
    drafts = [(token + 1) % VOCAB if n == wrong_at else token for n, token in enumerate(right[:3])]
    chain = [draw_of(params, 20 + n, draft_token=token) for n, token in enumerate([*drafts, None])]

    (choices,) = SAMPLER.choose(logits, [chain])

    num_drawn = 4 if wrong_at is None else wrong_at + 1
    assert [each.token for each in choices] == right[:num_drawn] + [-1] * (4 - num_drawn)


@pytest.mark.parametrize(
    "special_draw",
    [
        draw_of(SamplingParams(temperature=1.0, repetition_penalty=1.3, seed=4)),
        draw_of(GREEDY, wants_log_prob=True),
        draw_of(SamplingParams(temperature=1.0, seed=4), keeps_logits=True),
        draw_of(SamplingParams(temperature=1.0, logit_bias=((3, 50.0),), seed=4)),
    ],
    ids=["penalty", "log_prob", "logits", "bias"],
)
def test_draws_that_need_more_than_logits_are_made_one_by_one(special_draw, monkeypatch):
    """They get what they ask for, and the other draws are made as without them."""
    direct = [draw_of(SamplingParams(temperature=1.0, seed=4), 30), draw_of(GREEDY)]
    logits = logits_of(3, 3)
    expected = [each.token for (each,) in SAMPLER.choose(logits[1:], [[d] for d in direct])]
    calls = []
    drawn = SAMPLER.draw
    monkeypatch.setattr(
        SAMPLER, "draw", lambda hidden, draws: (calls.append(draws), drawn(hidden, draws))[1]
    )

    (own,), (first,), (second,) = SAMPLER.choose(logits, [[special_draw], *([d] for d in direct)])

    alone = draw_token(logits[0].clone(), special_draw)
    assert [first.token, second.token] == expected
    assert own.token == alone.token
    assert (own.log_probs is None, own.logits is None) == (
        alone.log_probs is None,
        alone.logits is None,
    )
    assert calls == [direct]


def test_sequence_without_draws_gets_no_choices():
    """A sequence of which a pass only reads prompt tokens has an empty chain."""
    (nothing, (choice,)) = SAMPLER.choose(logits_of(2, 1)[:1], [[], [draw_of(GREEDY)]])

    assert nothing == []
    assert choice.token == int(logits_of(2, 1)[0].argmax())
    assert SAMPLER.choose(torch.empty(0, VOCAB), [[], []]) == [[], []]
