"""Sum up the rounds of one request, in the form in which vLLM reports speculation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from specdec.engines.protocol import EngineCounts
from specdec.rounds import Round


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Times of a request's rounds, in seconds, summed over `num_rounds`.

    The first round is left out, because it also reads the prompt. `draft_s` and `target_s` are the
    times that the loop waited, calls between models included. `draft_engine_s` and
    `target_engine_s` are the times that the engines themselves report.
    """

    num_rounds: int
    total_s: float
    draft_s: float
    target_s: float
    draft_engine_s: float
    target_engine_s: float


@dataclass(frozen=True, slots=True)
class SpeculationSummary:
    """Counts over the rounds of one request.

    All draft tokens count as drafted, even those after a stop word. Only draft tokens that were
    sent to the client count as accepted.
    """

    num_draft_tokens: int
    num_accepted_tokens: int
    num_rounds_with_draft: int
    histograms: tuple[tuple[int, tuple[int, ...]], ...]
    """Pairs of k and a histogram: how many rounds with k draft tokens accepted 0, 1, … k."""
    per_drafter: tuple[tuple[str, int, int, int], ...]
    """Rows of drafter, rounds with its draft, draft tokens and accepted draft tokens."""

    @property
    def acceptance_histogram(self) -> tuple[int, ...]:
        """The number of rounds that accepted 0, 1, … draft tokens, over all k."""
        size = max((length for length, _ in self.histograms), default=-1) + 1
        totals = [0] * size
        for _, counts in self.histograms:
            for accepted, count in enumerate(counts):
                totals[accepted] += count
        return tuple(totals)

    @property
    def acceptance_rate(self) -> float:
        """Accepted ÷ drafted, 0 without drafts. It is not α̂: it falls as k grows."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def mean_acceptance_length(self) -> float | None:
        """τ as vLLM defines it: 1 + accepted ÷ rounds with a draft.

        So the target's own token is included. 1.0 without drafts. None if draft tokens were counted
        but rounds were not.
        """
        if not self.num_rounds_with_draft:
            return None if self.num_draft_tokens else 1.0
        return 1 + self.num_accepted_tokens / self.num_rounds_with_draft

    def counts_of(self, drafter: str) -> tuple[int, int]:
        """Return how many tokens a drafter proposed, and how many of them were accepted."""
        for name, _, drafted, accepted in self.per_drafter:
            if name == drafter:
                return drafted, accepted
        return 0, 0

    def to_json(self, times: RoundTimes) -> str:
        """Return vLLM's JSON for a request, with each drafter's counts and `times` added."""
        return json.dumps(
            {
                "round_times": asdict(times),
                "mean_acceptance_length": self.mean_acceptance_length,
                "draft_acceptance_rate": self.acceptance_rate,
                "acceptance_histogram": self.acceptance_histogram,
                "acceptance_histogram_by_draft_length": {
                    str(length): counts for length, counts in self.histograms
                },
                "num_spec_steps": self.num_rounds_with_draft,
                "num_draft_tokens": self.num_draft_tokens,
                "num_accepted_draft_tokens": self.num_accepted_tokens,
                "drafters": {
                    name: {
                        "num_spec_steps": num_rounds,
                        "num_draft_tokens": drafted,
                        "num_accepted_draft_tokens": accepted,
                    }
                    for name, num_rounds, drafted, accepted in self.per_drafter
                },
            }
        )


def summary_of(name: str, counts: EngineCounts) -> SpeculationSummary:
    """Return the summary for an engine that speculates inside and counts tokens but no rounds."""
    drafted, accepted = counts.num_draft_tokens, counts.num_accepted_tokens
    return SpeculationSummary(drafted, accepted, 0, (), ((name, 0, drafted, accepted),))


def summarize(rounds: list[Round], num_sent: int) -> SpeculationSummary:
    """Return the summary of `rounds`; only the first `num_sent` of their tokens were sent."""
    histograms: dict[int, list[int]] = {}
    drafters: dict[str, list[int]] = {}
    num_left = num_sent
    for each in rounds:
        sent = min(len(each.tokens), num_left)
        num_left -= sent
        if each.drafter is None:
            continue
        accepted = min(each.num_accepted, sent)
        length = each.num_draft_tokens
        histograms.setdefault(length, [0] * (length + 1))[accepted] += 1
        counts = drafters.setdefault(each.drafter, [0, 0, 0])
        for index, amount in enumerate((1, length, accepted)):
            counts[index] += amount
    totals = [sum(column) for column in zip(*drafters.values(), strict=True)] or [0, 0, 0]
    return SpeculationSummary(
        num_draft_tokens=totals[1],
        num_accepted_tokens=totals[2],
        num_rounds_with_draft=totals[0],
        histograms=tuple((length, tuple(histograms[length])) for length in sorted(histograms)),
        per_drafter=tuple((name, *counts) for name, counts in drafters.items()),  # type: ignore[misc]
    )
