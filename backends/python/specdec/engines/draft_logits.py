"""A draft's logits on their way to the target, which is to see in them what was drawn from.

A compiled target takes the plain softmax of the logits that it is given (externalDraftTokensKernels
of TensorRT-LLM), and a compiled draft returns its model's own, of as many columns as its matrices
have. Our engines return what each token was drawn from, and all is said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.engines.sampling_inputs import Sampling

Logits = npt.NDArray[np.floating[Any]]


def drawn_from(generation_logits: Logits, sampling: Sampling) -> Logits:
    """[…, columns] of one draft call → [tokens, vocab], in the dtype of the engine's logits."""
    logits = generation_logits.reshape(-1, generation_logits.shape[-1])
    if sampling.has_shared_sampler:
        return logits
    # Drafts that are judged are drawn at a temperature and by nothing else: Sampling.for_draft.
    return logits[:, : sampling.vocab_size] / logits.dtype.type(sampling.params.temperature)


def fitted(logits: Logits, sampling: Sampling) -> Logits:
    """[tokens, vocab of the draft] → [tokens, columns of the target], impossible where new."""
    num_missing = sampling.padded_vocab_size - logits.shape[1]
    if sampling.has_shared_sampler or num_missing == 0:
        return logits
    never = np.finfo(logits.dtype).min
    padding = ((0, 0), (0, max(0, num_missing)))
    return np.pad(logits, padding, constant_values=never)[:, : sampling.padded_vocab_size]
