"""Quantiles of the beta distribution, without SciPy, which the orchestrator does not depend on."""

from __future__ import annotations

import math

_BISECTIONS = 60
_MAX_TERMS = 10_000
_PRECISION = 1e-14
_TINY = 1e-300
"""Replacement for a denominator of 0."""


def beta_quantile(probability: float, shape_a: float, shape_b: float) -> float:
    """Return the x below which Beta(a, b) lies with `probability`; both shapes are above 0."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        is_less = beta_below(middle, shape_a, shape_b) < probability
        low, high = (middle, high) if is_less else (low, middle)
    return (low + high) / 2.0


def beta_below(x: float, shape_a: float, shape_b: float) -> float:
    """Return the probability that Beta(a, b) is below x (regularized incomplete beta function).

    Its continued fraction (Abramowitz and Stegun, 26.5.8) converges fast below the mean. Above the
    mean, the mirrored distribution is used.
    """
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (shape_a + 1.0) / (shape_a + shape_b + 2.0):
        return 1.0 - beta_below(1.0 - x, shape_b, shape_a)
    log_front = (
        math.lgamma(shape_a + shape_b)
        - math.lgamma(shape_a)
        - math.lgamma(shape_b)
        + shape_a * math.log(x)
        + shape_b * math.log1p(-x)
    )
    return math.exp(log_front) / (shape_a * _fraction(x, shape_a, shape_b))


def _fraction(x: float, shape_a: float, shape_b: float) -> float:
    """Return 1 + d₁/(1 + d₂/(1 + …)), evaluated forwards by Lentz's modified method."""
    value = numerators = 1.0
    denominators = 0.0
    for term in range(1, _MAX_TERMS):
        step = _coefficient(term, x, shape_a, shape_b)
        denominators = 1.0 / (1.0 + step * denominators or _TINY)
        numerators = 1.0 + step / numerators or _TINY
        change = numerators * denominators
        value *= change
        if abs(change - 1.0) < _PRECISION:
            break
    return value


def _coefficient(term: int, x: float, shape_a: float, shape_b: float) -> float:
    half = term // 2
    if term % 2:
        top = -(shape_a + half) * (shape_a + shape_b + half)
        return top * x / ((shape_a + 2 * half) * (shape_a + 2 * half + 1.0))
    top = half * (shape_b - half)
    return top * x / ((shape_a + 2 * half - 1.0) * (shape_a + 2 * half))
