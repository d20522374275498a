"""Limits that a load test must keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec.loadtest.load.measures import Distribution
    from specdec.loadtest.load.summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a load test; None means no limit. By default no request may fail."""

    max_p95_ttft_ms: float | None = None
    max_p95_itl_ms: float | None = None
    max_p95_icl_ms: float | None = None
    max_p95_e2e_ms: float | None = None
    min_tokens_per_s: float | None = None
    min_acceptance: float | None = None
    max_fail_ratio: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit that was broken; `value` is None if there was nothing to measure."""

    name: str
    limit: float
    value: float | None

    def __str__(self) -> str:
        value = "nothing measured" if self.value is None else f"{self.value:.4g}"
        return f"{self.name}: limit {self.limit:g}, value {value}"


def find_violations(summary: Summary, limits: Limits) -> list[Violation]:
    """Return the limits that a load test broke.

    A limit on something that was not measured counts as broken: a check that saw nothing must not
    pass. A test without any complete answer breaks the limit `min_complete_answers`, which always
    holds.
    """
    upper = {
        "max_p95_ttft_ms": _p95_ms(summary.ttft),
        "max_p95_itl_ms": _p95_ms(summary.itl),
        "max_p95_icl_ms": _p95_ms(summary.icl),
        "max_p95_e2e_ms": _p95_ms(summary.e2e),
        "max_fail_ratio": summary.fail_ratio,
    }
    lower = {
        "min_tokens_per_s": summary.tokens_per_s,
        "min_acceptance": summary.acceptance_rate,
    }
    violations = []
    if summary.num_ok == 0:
        violations.append(Violation("min_complete_answers", 1, 0))
    for name, value in (upper | lower).items():
        limit = getattr(limits, name)
        if limit is None:
            continue
        # NaN compares false with everything; written like this, it breaks the limit.
        keeps = value is not None and (value <= limit if name in upper else value >= limit)
        if not keeps:
            violations.append(Violation(name, limit, value))
    return violations


def _p95_ms(distribution: Distribution | None) -> float | None:
    return None if distribution is None else distribution.p95_s * 1000
