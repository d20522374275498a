"""Formulas of speculation: expected tokens per round, speed-up and the best draft length k.

α is the conditional acceptance: the chance that a draft token is accepted if those before it were.
Accepted ÷ drafted, which others call α too, falls as k grows at the same α; it is called
`acceptance_rate` here. E is the expected tokens per round, the target's own included; its measured
mean is τ.

Sources: Leviathan et al. 2023 (E, the speed-up, the choice of k); Liu et al. 2024, "Optimizing
speculative decoding for serving large language models using goodput" (costs by load, k = 0 among
the choices).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RoundTime = Callable[[int], float]
"""Function from k to the time of a round, in any unit; for k = 0, the time of a plain step."""


def expected_tokens(alpha: float, num_draft_tokens: float) -> float:
    """Return E(α, k) = (1 − α^(k+1)) / (1 − α), for an α that is the same at every position.

    `num_draft_tokens` may be a mean. Raises ValueError for an α outside [0, 1].
    """
    _check_alpha(alpha)
    if alpha == 0.0:
        return 1.0
    if alpha == 1.0:
        return num_draft_tokens + 1.0
    # expm1 keeps the digits that 1 - α^(k+1) would lose near α = 1.
    return -math.expm1((num_draft_tokens + 1.0) * math.log(alpha)) / (1.0 - alpha)


def expected_tokens_by_length(alphas: Sequence[float]) -> tuple[float, ...]:
    """Return E = 1 + α₁ + α₁α₂ + … for each k from 0 to len(alphas).

    `alphas` has the conditional acceptance of each position. Raises ValueError for one outside
    [0, 1].
    """
    for alpha in alphas:
        _check_alpha(alpha)
    reached = itertools.accumulate(alphas, lambda chance, alpha: chance * alpha, initial=1.0)
    return tuple(itertools.accumulate(reached))


def draft_cost(cost: float) -> RoundTime:
    """Return Leviathan's time of a round, c·k + 1, in plain steps; `cost` is c.

    Verification costs one plain step.
    """
    return lambda num_draft_tokens: cost * num_draft_tokens + 1.0


def speed_up(alpha: float, num_draft_tokens: int, round_time: RoundTime) -> float:
    """Return E(α, k) · T(0) / T(k); with `draft_cost` it is Leviathan's E / (ck + 1).

    With T(k) = k·T_draft + T_verify(k + 1) + overhead at a batch size, it is the goodput at that
    load ÷ the goodput without speculation.
    """
    tokens = expected_tokens(alpha, num_draft_tokens)
    return tokens * round_time(0) / round_time(num_draft_tokens)


@dataclass(frozen=True, slots=True)
class DraftLength:
    """A draft length, and the tokens and speed-up expected of it."""

    num_draft_tokens: int
    expected_tokens: float
    speed_up: float
    """Speed-up over plain steps; 1 without a draft."""


def draft_lengths(alphas: Sequence[float], round_time: RoundTime) -> tuple[DraftLength, ...]:
    """Return all draft lengths from 0 to len(alphas); see `expected_tokens_by_length`."""
    plain = round_time(0)
    return tuple(
        DraftLength(length, tokens, tokens * plain / round_time(length))
        for length, tokens in enumerate(expected_tokens_by_length(alphas))
    )


def best_draft_length(alphas: Sequence[float], round_time: RoundTime) -> DraftLength:
    """Return the draft length with the largest speed-up, the shortest of equals; 0 means off.

    For a constant α and at most n draft tokens, pass `[α] * n`.
    """
    return max(draft_lengths(alphas, round_time), key=lambda choice: choice.speed_up)


def acceptance_rate(alpha: float, num_draft_tokens: int) -> float:
    """Return the accepted ÷ drafted to expect with k ≥ 1: (E − 1) / k."""
    return (expected_tokens(alpha, num_draft_tokens) - 1.0) / num_draft_tokens


def alpha_of_tau(tau: float, num_draft_tokens: int) -> float:
    """Return the α at which E(α, k) is τ. Raises ValueError for a τ outside [1, k + 1]."""
    if not 1.0 <= tau <= num_draft_tokens + 1.0:
        raise ValueError(
            f"τ counts the target's own token: with {num_draft_tokens} draft tokens a round it is "
            f"from 1 to {num_draft_tokens + 1}, not {tau:g}"
        )
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2.0) < high:
        is_less = expected_tokens(middle, num_draft_tokens) < tau
        low, high = (middle, high) if is_less else (low, middle)
    return middle


def alpha_of_rate(rate: float, num_draft_tokens: int) -> float:
    """Return the α at which accepted ÷ drafted is `rate`: the inverse of `acceptance_rate`.

    Raises ValueError for a rate outside [0, 1].
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"accepted ÷ drafted is from 0 to 1, not {rate:g}")
    return alpha_of_tau(1.0 + num_draft_tokens * rate, num_draft_tokens)


def _check_alpha(alpha: float) -> None:
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"α is a probability, from 0 to 1, not {alpha:g}")
