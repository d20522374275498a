"""Converts draft logits so that a target gets the distributions from which tokens were drawn.

A compiled target takes the plain softmax of the logits that it gets (externalDraftTokensKernels of
TensorRT-LLM). A compiled draft engine returns its model's logits before temperature, with a column
for each row of its output matrix. So scale and columns must be adapted. Our engines return the
logits from which each token was drawn, and need no conversion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.engines.wire.sampling_inputs import Sampling

Logits = npt.NDArray[np.floating[Any]]


def drawn_from(generation_logits: Logits, sampling: Sampling) -> Logits:
    """Return the logits from which the tokens of one draft call were drawn.

    Take the engine's output [..., columns], and return [tokens, vocab] in its dtype.
    """
    logits = generation_logits.reshape(-1, generation_logits.shape[-1])
    if sampling.takes_our_inputs:
        return logits
    # Compiled engines draw such drafts with temperature alone: see Sampling.for_draft.
    return logits[:, : sampling.vocab_size] / logits.dtype.type(sampling.params.temperature)


def fitted(logits: Logits, sampling: Sampling) -> Logits:
    """Pad or cut draft logits to the columns of the target's logits.

    Take [tokens, draft vocabulary] and return [tokens, target columns] in the same dtype. Added
    columns get the lowest finite number. For our own engines, return `logits` unchanged.
    """
    num_missing = sampling.padded_vocab_size - logits.shape[1]
    if sampling.takes_our_inputs or num_missing == 0:
        return logits
    never = np.finfo(logits.dtype).min
    padding = ((0, 0), (0, max(0, num_missing)))
    return np.pad(logits, padding, constant_values=never)[:, : sampling.padded_vocab_size]
