"""Tests that the target sees the distributions that a compiled draft was drawn from."""

import numpy as np
import pytest

from specdec.acceptance.modes import REJECTION
from specdec.acceptance.sampling import SamplingParams
from specdec.engines.wire.draft_logits import drawn_from, fitted
from specdec.engines.wire.sampling_inputs import Sampling, sampling_inputs

WARPED = SamplingParams(
    temperature=0.5, top_k=3, top_p=0.5, repetition_penalty=2.0, bad_words=((1,),), seed=9
)


def rejection_sampling(**sizes):
    """Return the sampling of a request that compiled engines verify by rejection."""
    return Sampling(WARPED, verification=REJECTION, **sizes)


def softmax(logits):
    """Return the probabilities that the target's kernel computes from the logits it is given."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_draft_is_drawn_with_its_temperature_only():
    """Truncation and penalties are left out, because the target cannot see them in the logits."""
    sampling = rejection_sampling().for_draft(1)

    names = {name for name, _ in sampling_inputs(sampling, num_context=5)}

    assert names == {"temperature", "runtime_top_k", "runtime_top_p", "seed"}
    assert sampling.params == SamplingParams(0.5, seed=sampling.params.seed)
    assert sampling.params.seed != WARPED.seed


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("num_target_columns", [6, 8, 10])
def test_target_sees_the_distribution_that_was_drawn_from(dtype, num_target_columns):
    """A draft of 6 tokens in 7 columns is fitted to targets with 6, 8 and 10 columns.

    Added columns have probability 0, and the dtype stays the same.
    """
    own = np.random.default_rng(0).normal(size=(1, 1, 4, 7)).astype(dtype)
    own[..., 6] = 30.0  # a padding column of the matrices, which is no token
    draft = rejection_sampling(vocab_size=6, padded_vocab_size=7).for_draft(1)
    target = rejection_sampling(vocab_size=num_target_columns, padded_vocab_size=num_target_columns)

    sent = fitted(drawn_from(own, draft), target)

    assert sent.shape == (4, num_target_columns)
    assert sent.dtype == dtype
    law = softmax(own[0, 0, :, :6].astype(np.float64) / 0.5)
    np.testing.assert_allclose(
        softmax(sent)[:, :6], law, rtol=1e-3 if dtype == np.float16 else 1e-6
    )
    assert (softmax(sent)[:, 6:] == 0).all()


def test_logits_of_our_engines_are_not_changed():
    """Our engines return the logits that tokens were drawn from, so nothing is left to convert."""
    logits = np.ones((1, 1, 2, 7), dtype=np.float32)
    ours = Sampling(WARPED, takes_our_inputs=True, verification=REJECTION)

    assert fitted(drawn_from(logits, ours), ours).tolist() == logits[0, 0].tolist()
