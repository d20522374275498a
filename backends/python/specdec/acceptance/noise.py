"""Noise that is a function of (seed, position, token) and of nothing else.

A token is drawn by racing exponential clocks: the token whose E / p is smallest wins, which is the
Gumbel-max trick with g = -log E. Draft and target take the same E for the same place, so they
mostly draw the same token, and what the target draws does not depend on whether anyone guessed
(Daliri, Musco, Suresh 2024, drafter-invariant speculative decoding).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_SCALE = np.float32(2.0**-32)


def gumbel(seed: int, position: int, vocab_size: int) -> Tensor:
    """[vocab_size] float32: standard Gumbel noise, entry i for token i.

    From Philox 4x64-10 keyed by (seed, position), 32 bits a token; the entry of a token does not
    depend on `vocab_size`. The exponential is taken of the small end of the unit interval, where
    float32 is fine-grained: those are the clocks that win.
    """
    bits = np.random.Philox(key=np.array([seed, position], dtype=np.uint64)).random_raw(
        -(-vocab_size // 2)
    )
    words = bits.view(np.uint32)[:vocab_size]
    uniform = (words.astype(np.float32) + np.float32(0.5)) * _SCALE
    clocks = torch.from_numpy(uniform).neg_().log1p_().neg_()
    return clocks.log_().neg_()
