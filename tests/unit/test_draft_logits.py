"""Logits of a compiled draft: what the target sees in them is what was drawn from."""

import numpy as np
import pytest

from specdec.acceptance.sampling import SamplingParams
from specdec.engines.draft_logits import drawn_from, fitted
from specdec.engines.sampling_inputs import REJECTION, Sampling, sampling_inputs

WARPED = SamplingParams(
    temperature=0.5, top_k=3, top_p=0.5, repetition_penalty=2.0, bad_words=((1,),), seed=9
)


def judged(**sizes):
    """Return how a compiled engine draws for a request that is verified by rejection."""
    return Sampling(WARPED, verification=REJECTION, **sizes)


def softmax(logits):
    """Return probabilities as the target's kernel makes them of what it is given."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_draft_draws_by_its_temperature_alone():
    """Neither truncation nor penalties, which the target would not see in the logits."""
    sampling = judged().for_draft(1)

    names = {name for name, _ in sampling_inputs(sampling, num_context=5)}

    assert names == {"temperature", "runtime_top_k", "runtime_top_p", "seed"}
    assert sampling.params == SamplingParams(0.5, seed=sampling.params.seed)
    assert sampling.params.seed != WARPED.seed


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("num_target_columns", [6, 8, 10])
def test_target_sees_what_was_drawn_from(dtype, num_target_columns):
    """Of 6 tokens in 7 columns, for a target with as many, and with more, columns."""
    own = np.random.default_rng(0).normal(size=(1, 1, 4, 7)).astype(dtype)
    own[..., 6] = 30.0  # what stands behind the tokens means nothing
    draft = judged(vocab_size=6, padded_vocab_size=7).for_draft(1)
    target = judged(vocab_size=num_target_columns, padded_vocab_size=num_target_columns)

    sent = fitted(drawn_from(own, draft), target)

    assert sent.shape == (4, num_target_columns)
    assert sent.dtype == dtype
    law = softmax(own[0, 0, :, :6].astype(np.float64) / 0.5)
    np.testing.assert_allclose(
        softmax(sent)[:, :6], law, rtol=1e-3 if dtype == np.float16 else 1e-6
    )
    assert (softmax(sent)[:, 6:] == 0).all()


def test_our_engines_logits_pass_as_they_are():
    """They are what was drawn from already."""
    logits = np.ones((1, 1, 2, 7), dtype=np.float32)
    ours = Sampling(WARPED, has_shared_sampler=True, verification=REJECTION)

    assert fitted(drawn_from(logits, ours), ours).tolist() == logits[0, 0].tolist()
