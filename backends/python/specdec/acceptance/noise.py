"""Sampling noise that is a function of (seed, position, token) and of nothing else.

A draw is a race of exponential clocks. Each token has an exponential random number E and a
probability p, and the token with the smallest E / p wins. This is the Gumbel-max trick with
g = -log E. Draft model and target use the same E at the same position, so they mostly draw the
same token. The target's draw does not depend on the draft (Daliri, Musco, Suresh 2024,
drafter-invariant speculative decoding).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_SCALE = np.float32(2.0**-32)


def gumbel(seed: int, position: int, vocab_size: int) -> Tensor:
    """Return standard Gumbel noise, [vocab_size] float32 on the CPU, entry i for token i.

    The random bits come from Philox 4x64-10 with the key (seed, position), 32 bits for each token.
    A token's entry does not depend on `vocab_size`. The clock of a uniform number u is -log(1 - u):
    the small clocks, which win, come from small u, where float32 is finest.
    """
    bits = np.random.Philox(key=np.array([seed, position], dtype=np.uint64)).random_raw(
        -(-vocab_size // 2)
    )
    words = bits.view(np.uint32)[:vocab_size]
    uniform = (words.astype(np.float32) + np.float32(0.5)) * _SCALE
    clocks = torch.from_numpy(uniform).neg_().log1p_().neg_()
    return clocks.log_().neg_()
