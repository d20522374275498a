"""The numbers of a report, computed from a history by the formulas in the docstrings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from specdec.loadtest.report.history import History

ACCEPTED = "specdec_num_accepted_tokens_total"
DRAFTED = "specdec_num_draft_tokens_total"
ROUNDS = "specdec_num_drafts_total"
TOKENS = "specdec_generation_tokens_total"


@dataclass(frozen=True, slots=True)
class Drafting:
    """The draft tokens of one drafter for one task."""

    task: str
    drafter: str
    num_rounds: float
    num_drafted: float
    num_accepted: float
    alpha: float | None
    """The controller's latest α̂; None if no controller reports it."""

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens; it falls as k grows."""
        return ratio(self.num_accepted, self.num_drafted)

    @property
    def draft_length(self) -> float | None:
        """Mean k = drafted tokens / rounds with a draft."""
        return ratio(self.num_drafted, self.num_rounds)

    @property
    def acceptance_length(self) -> float | None:
        """τ = 1 + accepted / rounds with a draft, the target's own token included."""
        accepted = ratio(self.num_accepted, self.num_rounds)
        return None if accepted is None else 1 + accepted


@dataclass(frozen=True, slots=True)
class Gain:
    """Tokens per second with speculation ÷ without, for one task, at the end of the history."""

    task: str
    measured: float | None
    low: float | None
    high: float | None
    """The upper end of the 95 % interval of the measured gain; `low` is the lower end."""
    estimated: float | None


@dataclass(frozen=True, slots=True)
class Latency:
    """A histogram of times: cumulative counts at upper bounds in seconds, the last one infinite."""

    bounds_s: tuple[float, ...]
    counts: tuple[float, ...]
    sum_s: float

    @property
    def num_samples(self) -> float:
        return self.counts[-1]

    @property
    def mean_s(self) -> float:
        return self.sum_s / self.num_samples

    def quantile_s(self, fraction: float) -> float:
        """Return a quantile in seconds, interpolated linearly within its bucket as in Prometheus.

        Beyond the last finite bound, that bound is returned.
        """
        wanted = fraction * self.num_samples
        bound_s, count = 0.0, 0.0
        for upper_s, upper in zip(self.bounds_s, self.counts, strict=True):
            if upper >= wanted and upper > count:
                if math.isinf(upper_s):
                    return bound_s
                return bound_s + (upper_s - bound_s) * (wanted - count) / (upper - count)
            bound_s, count = upper_s, upper
        return bound_s


def draftings(history: History) -> list[Drafting]:
    """Return the drafters of each task, the one with most rounds first."""
    rounds, drafted, accepted = (
        history.total(name, "task", "drafter") for name in (ROUNDS, DRAFTED, ACCEPTED)
    )
    alphas = history.gauges("specdec_acceptance_alpha", "task", "drafter")[-1]
    found = [
        Drafting(
            task=key[0],
            drafter=key[1],
            num_rounds=count,
            num_drafted=drafted.get(key, 0.0),
            num_accepted=accepted.get(key, 0.0),
            alpha=alphas.get(key),
        )
        for key, count in rounds.items()
        if count
    ]
    return sorted(found, key=lambda each: (each.task, -each.num_rounds))


def together(parts: list[Drafting], task: str = "", drafter: str = "") -> Drafting:
    """Return the sum of several; its `alpha` is None."""
    return Drafting(
        task,
        drafter,
        num_rounds=sum(each.num_rounds for each in parts),
        num_drafted=sum(each.num_drafted for each in parts),
        num_accepted=sum(each.num_accepted for each in parts),
        alpha=None,
    )


def gains(history: History) -> list[Gain]:
    """Return the gain of each task; empty if no controller reports it."""
    measured, low, high, estimated = (
        history.gauges(f"specdec_{name}", "task")[-1]
        for name in (
            "measured_speedup",
            "measured_speedup_low",
            "measured_speedup_high",
            "estimated_speedup",
        )
    )
    tasks = sorted(measured.keys() | estimated.keys())
    return [
        Gain(key[0], measured.get(key), low.get(key), high.get(key), estimated.get(key))
        for key in tasks
    ]


def latency(history: History, name: str) -> Latency | None:
    """Return the histogram `specdec_<name>_seconds`; None if nothing was observed."""
    buckets = history.total(f"specdec_{name}_seconds_bucket", "le")
    counts = sorted((float(bound), count) for (bound,), count in buckets.items())
    if not counts or not counts[-1][1]:
        return None
    total = history.total(f"specdec_{name}_seconds_sum").get((), 0.0)
    return Latency(tuple(bound for bound, _ in counts), tuple(count for _, count in counts), total)


def by_position(history: History) -> dict[str, list[float]]:
    """Return for each drafter the share of drafts whose token at position 0, 1, … was accepted."""
    accepted = history.total("specdec_num_accepted_tokens_per_pos_total", "drafter", "position")
    rounds = history.total(ROUNDS, "drafter")
    shares = {}
    for (drafter,), count in rounds.items():
        own = {int(nth): value for (name, nth), value in accepted.items() if name == drafter}
        if count and own:
            shares[drafter] = [own.get(nth, 0.0) / count for nth in range(max(own) + 1)]
    return shares


def acceptance_course(history: History) -> dict[str, list[float]]:
    """Return accepted / drafted of each step by task; NaN if nothing was drafted."""
    accepted, drafted = (history.steps(name, "task") for name in (ACCEPTED, DRAFTED))
    return {
        task: [
            up.get((task,), 0.0) / down[task,] if down.get((task,)) else math.nan
            for up, down in zip(accepted, drafted, strict=True)
        ]
        for task in sorted({task for step in drafted for (task,), count in step.items() if count})
    }


def rate_course(history: History, name: str, *by: str) -> dict[str, list[float]]:
    """Return a counter's growth per second in each step, by labels."""
    lengths_s = [after - before for before, after in pairwise(history.times_s)]
    steps = history.steps(name, *by)
    keys = sorted({key for step in steps for key in step})
    return {
        " · ".join(key): [
            step.get(key, 0.0) / length_s for step, length_s in zip(steps, lengths_s, strict=True)
        ]
        for key in keys
    }


def gauge_course(history: History, name: str, *by: str) -> dict[str, list[float]]:
    """Return a gauge at each scrape, by labels; NaN where it was missing."""
    found = history.gauges(name, *by)
    keys = sorted({key for each in found for key in each})
    return {" · ".join(key): [each.get(key, math.nan) for each in found] for key in keys}


def ratio(above: float, below: float) -> float | None:
    """Return above ÷ below; None if `below` is 0."""
    return above / below if below else None
