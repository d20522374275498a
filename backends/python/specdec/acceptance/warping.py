"""Warping: bias, penalties, bans, guide, temperature and truncation, applied to a model's logits.

The softmax of the warped logits is the distribution from which a token is drawn. Each function
works on the row of one draw, so a row's result cannot depend on other rows.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from specdec.acceptance.sampling import Draw, SamplingParams

NEVER = float("-inf")

BIASES_KEPT = 64
"""Most requests whose logit_bias is cached as tensors; a pass draws many rows of each request."""


def warp(logits: Tensor, draw: Draw) -> Tensor:
    """Warp `logits` [vocab] float32 in place and return them; banned tokens get -inf.

    Bias comes first, as in TensorRT-LLM's penalty kernels. Then the order is that of the logits
    processors of transformers: penalties, bans, temperature, top-k, top-p, min-p. The guide's mask
    comes after the bans, so that truncation counts only tokens that may be drawn. Greedy draws keep
    temperature 1 and all tokens, because only the largest logit matters.

    Raises InvalidRequestError if the guide has become too complex to follow.
    """
    if draw.params.logit_bias:
        tokens, biases = _bias_tensors(_Identity(draw.params.logit_bias), logits.device)
        logits[tokens] += biases
    if draw.params.looks_back:
        _penalize(logits, draw)
        _ban(logits, draw)
        _constrain(logits, draw)
    if not draw.params.is_greedy:
        logits.div_(draw.params.temperature)
        truncate(logits, draw.params)
    return logits


class _Identity:
    """A cache key that compares by identity, because hashing all pairs for each row is slow."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: tuple[tuple[int, float], ...]) -> None:
        self.pairs = pairs

    def __hash__(self) -> int:
        return id(self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.pairs is self.pairs


@lru_cache(maxsize=BIASES_KEPT)
def _bias_tensors(bias: _Identity, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return tokens [n] int64 and biases [n] float32 on `device`."""
    tokens, biases = zip(*bias.pairs, strict=True)
    return (
        torch.tensor(tokens, dtype=torch.int64, device=device),
        torch.tensor(biases, dtype=torch.float32, device=device),
    )


def truncate(logits: Tensor, params: SamplingParams) -> None:
    """Set the tokens that top-k, top-p and min-p exclude to -inf in `logits` [vocab] float32."""
    if 0 < params.top_k < len(logits):
        smallest = torch.topk(logits, params.top_k).values[-1]
        logits.masked_fill_(logits < smallest, NEVER)
    if params.top_p < 1.0:
        logits.masked_fill_(logits < _nucleus_floor(logits, params.top_p), NEVER)
    if params.min_p > 0.0:
        logits.masked_fill_(logits < logits.max() + math.log(params.min_p), NEVER)


def _nucleus_floor(logits: Tensor, top_p: float) -> Tensor:
    """Return the smallest logit of the smallest set of tokens with `top_p` of the probability."""
    probabilities = torch.softmax(logits, dim=0)
    # Tokens below this bound sum to less than 1 - top_p, so they need no sorting.
    (likely,) = torch.nonzero(probabilities >= (1.0 - top_p) / len(logits), as_tuple=True)
    if not len(likely):  # The logits are NaN, and the sampler will refuse the row.
        return logits.max()
    ordered, order = probabilities[likely].double().sort(descending=True)
    reached = torch.searchsorted(ordered.cumsum(0), top_p)
    return logits[likely[order[reached.clamp(max=len(order) - 1)]]]


def _penalize(logits: Tensor, draw: Draw) -> None:
    params = draw.params
    if params.repetition_penalty != 1.0:
        seen = torch.from_numpy(np.unique(draw.context).astype(np.int64)).to(logits.device)
        own = logits[seen]
        factor = params.repetition_penalty
        logits[seen] = torch.where(own > 0, own / factor, own * factor)
    if params.presence_penalty != 0.0 or params.frequency_penalty != 0.0:
        ids, counts = np.unique(draw.context[draw.num_prompt_tokens :], return_counts=True)
        cost = params.presence_penalty + params.frequency_penalty * counts.astype(np.float32)
        seen = torch.from_numpy(ids.astype(np.int64)).to(logits.device)
        logits[seen] -= torch.from_numpy(cost.astype(np.float32)).to(logits.device)


def _ban(logits: Tensor, draw: Draw) -> None:
    num_output = draw.position - draw.num_prompt_tokens
    is_early = num_output < draw.params.min_tokens
    # An end token outside the vocabulary (-1 means none) is never drawn anyway.
    if is_early and draw.end_id is not None and 0 <= draw.end_id < len(logits):
        logits[draw.end_id] = NEVER
    for word in draw.params.bad_words:
        beginning = word[:-1]
        if tuple(draw.context[draw.position - len(beginning) :].tolist()) == beginning:
            logits[word[-1]] = NEVER
    if draw.banned is not None:
        tokens = draw.banned.tokens_after(draw.context[draw.num_prompt_tokens :])
        logits[torch.from_numpy(tokens).to(logits.device)] = NEVER


def _constrain(logits: Tensor, draw: Draw) -> None:
    """Ban the tokens that the guide forbids here.

    After a draft token that the guide forbids, and after the end token, nothing is banned, because
    nothing that is drawn there is used.
    """
    if draw.constraint is None:
        return
    allowed = draw.constraint.after(draw.context[draw.num_prompt_tokens :])
    if allowed is None:
        return
    if draw.end_id is None:
        # A draft that is verified by probabilities draws the end token like any other.
        allowed.forbidden[draw.constraint.end_ids] = not allowed.may_end
    elif 0 <= draw.end_id < len(logits):
        allowed.forbidden[draw.end_id] = not allowed.may_end
    logits.masked_fill_(torch.from_numpy(allowed.forbidden).to(logits.device), NEVER)
