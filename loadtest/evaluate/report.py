"""The tables of `specdec evaluate`: advice, figures by k, acceptance by position, costs, causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specdec.loadtest.evaluate.advice import GUIDE_RULE, MIN_PROMPTS, OUR_RULE, Advice
from specdec.loadtest.evaluate.costs import RoundCosts
from specdec.loadtest.evaluate.findings import Finding
from specdec.loadtest.kit.ratios import Ratio
from specdec.loadtest.kit.results import markdown_table

Findings = Sequence[tuple[Finding, Advice]]

NOTES = f"""\
Our advice is to deploy if {OUR_RULE}, with at least {MIN_PROMPTS} prompts of a domain; the guide's
("Speculative Decoding for LLM Acceleration") is to deploy if {GUIDE_RULE}.
The gain is tokens per second with speculation ÷ without, after the first response. Brackets hold
95 % intervals, from resampling whole prompts. A predicted gain is the tokens expected of a round
at the measured acceptance ÷ the time of such a round, relative to a plain step."""


FEW = 8
"""Prompts of a domain below which an interval is too narrow."""


def report(found: Findings, costs: Mapping[str, RoundCosts]) -> str:
    """Return all tables and notes as Markdown."""
    parts = [_advice_table(found), _figures_table(found), _positions_table(found)]
    parts += [_costs_table(costs), _causes(found), _few(found), NOTES]
    return "\n\n".join(part for part in parts if part)


def facts(found: Findings) -> list[dict[str, Any]]:
    """Return the same results for the JSON file."""
    return [
        {**asdict(finding), "advice": asdict(advice), "measured_best": finding.measured_best.arm}
        for finding, advice in found
    ]


def _advice_table(found: Findings) -> str:
    rows = []
    for finding, advice in found:
        best, chosen = finding.measured_best, finding.best
        rows.append(
            [
                finding.domain,
                finding.drafter,
                str(finding.num_prompts),
                f"**{advice.ours}**",
                f"{best.gain} with {_draft_length(best.num_draft_tokens)}",
                _predicted_best(chosen.num_draft_tokens, chosen.speed_up) if chosen else "–",
                advice.guide or "–",
            ]
        )
    header = ["domain", "drafter", "prompts", "advice", "best measured gain"]
    return markdown_table([*header, "best k predicted", "the guide's rule"], rows)


def _figures_table(found: Findings) -> str:
    rows = [
        [
            finding.domain,
            f"{finding.drafter}, {_draft_length(arm.num_draft_tokens)}",
            _interval(finding.alpha),
            _interval(arm.rate),
            _interval(arm.tau),
            f"{arm.counts.tokens_per_round:.2f}",
            str(arm.gain),
            _interval(arm.predicted),
        ]
        for finding, _ in found
        for arm in finding.arms
    ]
    header = ["domain", "drafter", "α̂ (all k)", "accepted ÷ drafted", "τ", "tokens/round"]
    return markdown_table([*header, "gain measured", "gain predicted"], rows)


def _positions_table(found: Findings) -> str:
    longest = max((len(finding.positions) for finding, _ in found), default=0)
    rows = []
    for finding, _ in found:
        cells = [
            f"{each.alpha:.2f} of {each.num_compared:.0f}" if each.alpha is not None else "–"
            for each in finding.positions
        ]
        rows.append([finding.domain, finding.drafter, *cells, *["–"] * (longest - len(cells))])
    header = ["α by position", "drafter", *(f"{position + 1}." for position in range(longest))]
    return markdown_table(header, rows) if longest else ""


def _costs_table(costs: Mapping[str, RoundCosts]) -> str:
    rows = [
        [
            drafter,
            *(f"{value * 1000:.2f}" for value in (own.plain_s, own.base_s, own.per_draft_token_s)),
        ]
        for drafter, own in costs.items()
    ]
    return markdown_table(["ms", "plain step", "round", "and per draft token"], rows)


def _causes(found: Findings) -> str:
    lines = [
        f"- {finding.domain}, {finding.drafter}: {cause}"
        for finding, advice in found
        for cause in advice.causes
    ]
    return "Likely causes where acceptance or gain is low:\n\n" + "\n".join(lines) if lines else ""


def _few(found: Findings) -> str:
    few = dict.fromkeys(each.domain for each, _ in found if each.num_prompts < FEW)
    if not few:
        return ""
    return f"Read with care: fewer than {FEW} prompts ({', '.join(few)}) make intervals too narrow."


def _draft_length(num_draft_tokens: int | None) -> str:
    return "k as served" if num_draft_tokens is None else f"k = {num_draft_tokens}"


def _predicted_best(num_draft_tokens: int, gain: float) -> str:
    return f"k = {num_draft_tokens}: {gain:.2f}" if num_draft_tokens else "0 (off)"


def _interval(value: Ratio | None) -> str:
    return "–" if value is None else str(value)
