"""The figures and the table of `specdec bench exact`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.loadtest.kit.results import format_number, table_of
from specdec.loadtest.lab.exactness.comparing import Comparison

SUMMED = ("num_tokens", "num_steps", "num_drafted", "num_accepted")


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """Sums over the answers of one arm in one case."""

    case: str
    arm: str
    num_answers: int
    num_equal: int
    num_equal_log_probs: int
    num_tokens: int
    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int


def figures(comparisons: Sequence[Comparison]) -> list[ArmFigures]:
    """Sum up the comparisons by case and arm."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for each in comparisons:
        groups.setdefault((each.case, each.arm), []).append(each)
    return [
        ArmFigures(
            case,
            arm,
            len(own),
            sum(each.first_difference is None for each in own),
            sum(each.equal_log_probs for each in own),
            *(sum(getattr(each, name) for each in own) for name in SUMMED),
        )
        for (case, arm), own in groups.items()
    ]


def table(arms: Sequence[ArmFigures]) -> str:
    """Return a table with a row for each case and arm."""
    return table_of(
        {
            "draw": lambda each: each.case,
            "arm": lambda each: each.arm,
            "equal to target": lambda each: f"{each.num_equal} of {each.num_answers}",
            "log-probs bit-equal": lambda each: f"{each.num_equal_log_probs} of {each.num_answers}",
            "tokens": lambda each: str(each.num_tokens),
            "drafted": lambda each: str(each.num_drafted),
            "accepted": lambda each: str(each.num_accepted),
            "τ": lambda each: format_number(
                1 + each.num_accepted / each.num_steps if each.num_steps else None, 2
            ),
        },
        arms,
    )
