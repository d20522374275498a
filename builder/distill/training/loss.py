"""The training loss against the target's stored top-k tokens, in the draft vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SMALL = 1e-6
"""Lower bound for probabilities in a denominator or a logarithm."""


def soft_targets(
    top_ids: Tensor, top_logprobs: Tensor, target_to_draft: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Restrict the target's rows to the draft vocabulary.

    `top_ids` int64 and `top_logprobs` float [rows, num_top] come best first. `target_to_draft`
    int64 [vocab] is -1 outside the draft vocabulary. Returns draft ids [rows, num_top], their
    weights, the weight of everything else [rows], and a mask [rows] of the positions that count.

    The weights of a row are renormalised to 1. A position counts if it is not padding and its most
    likely target token is in the draft vocabulary (EAGLE-3's rule). Candidates outside the draft
    vocabulary repeat the first id with weight 0.
    """
    ids = target_to_draft[top_ids]
    inside = ids >= 0
    weights = top_logprobs.float().exp()
    tail = (1 - weights.sum(dim=1)).clamp(min=0)
    weights = weights * inside
    total = (weights.sum(dim=1) + tail).clamp(min=SMALL)
    ids = torch.where(inside, ids, ids[:, :1].clamp(min=0))
    mask = inside[:, 0] & (weights[:, 0] > 0)
    return ids, weights / total[:, None], tail / total, mask


class _TailBucketLoss(torch.autograd.Function):
    """The mean over masked rows of -sum_i w_i log draft(i) - w_tail log draft(rest).

    It is written by hand, because the softmax is then the only array of full width. `rest` is the
    draft's mass outside the candidates. The gradient is draft(j) - w_j at a candidate, and draft(j)
    (1 - w_tail / rest) elsewhere.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, ids: Tensor, weights: Tensor, tail: Tensor, mask: Tensor
    ) -> Tensor:
        probs = torch.softmax(logits, dim=1, dtype=torch.float32)
        chosen = probs.gather(1, ids)
        rest = (1 - (chosen * (weights > 0)).sum(dim=1)).clamp(min=SMALL)
        rows = -(weights * chosen.clamp(min=1e-12).log()).sum(dim=1) - tail * rest.log()
        share = mask.float() / mask.sum().clamp(min=1)
        ctx.save_for_backward(probs, ids, weights, tail / rest, share)
        ctx.dtype = logits.dtype
        return (rows * share).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        probs, ids, weights, ratio, share = ctx.saved_tensors
        chosen = probs.gather(1, ids)
        # Candidates that repeat the first id must write the same value as the first.
        at_first = torch.where(weights > 0, chosen - weights, (chosen - weights)[:, :1])
        grad = (probs * (1 - ratio)[:, None]).scatter_(1, ids, at_first)
        grad *= (share * grads[0])[:, None]
        return grad.to(ctx.dtype), None, None, None, None


def distillation_loss(
    draft_logits: Tensor, ids: Tensor, weights: Tensor, tail: Tensor, mask: Tensor
) -> Tensor:
    """Return the forward KL divergence, up to a constant, of logits [rows, draft_vocab].

    The other arguments are what `soft_targets` returns. The target's tail is only known as a
    sum, so it counts as one token: the draft learns the sum and may divide it as it likes.
    """
    out: Tensor = _TailBucketLoss.apply(draft_logits, ids, weights, tail, mask)
    return out
