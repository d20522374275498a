"""The engines' own counts of draft tokens, side by side: one draft model or head in each engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from loadtest.bench.reporting import markdown_table, shown
from loadtest.peers.catalogue import ArmName, Way
from loadtest.peers.measuring import Measurement
from loadtest.peers.protocol import Drafts, together
from loadtest.peers.report import NOTHING, of

HEADER = ["one stream", "guesses a round", "rounds with any", "τ", "accepted ÷ drafted"]
HEADER += ["answers as its engine alone"]


def drafts_table(
    found: Sequence[Measurement], arms: Sequence[ArmName], failures: dict[ArmName, str]
) -> str:
    """Return a table with a row for each arm that counts its draft tokens, or failed."""
    rows = []
    for arm in arms:
        own = drafts_of(found, arm)
        if arm in failures:
            rows.append([arm.label, *[NOTHING] * 4, failures[arm]])
        elif own is not None:
            steps, drafted = own.num_steps, own.num_drafted
            rows.append(
                [
                    arm.label,
                    shown(drafted / steps if steps else None, 1),
                    f"{steps:,}",
                    shown(1 + own.num_accepted / steps if steps else None, 2),
                    shown(own.num_accepted / drafted if drafted else None, 3),
                    _as_alone(found, arm, arms),
                ]
            )
    return markdown_table(HEADER, rows)


def drafts_figures(found: Sequence[Measurement], arms: Sequence[ArmName]) -> list[dict[str, Any]]:
    """Return the counts of each arm that drafts, and its answers that equal its engine's own."""
    known = {arm: drafts_of(found, arm) for arm in arms}
    return [
        {"arm": arm.label, **asdict(own), **_equal_alone(found, arm, arms)}
        for arm, own in known.items()
        if own is not None
    ]


def drafts_of(found: Sequence[Measurement], arm: ArmName) -> Drafts | None:
    """Return the counts of all its answers with one stream; None if it does not count."""
    known = [each.reply.drafts for each in of(found, arm, 1) if each.reply.drafts is not None]
    return together(known) if known else None


def _as_alone(found: Sequence[Measurement], arm: ArmName, arms: Sequence[ArmName]) -> str:
    known = _equal_alone(found, arm, arms)
    return f"{known['num_equal_alone']}/{known['num_compared']}" if known else NOTHING


def _equal_alone(
    found: Sequence[Measurement], arm: ArmName, arms: Sequence[ArmName]
) -> dict[str, int]:
    """Count the answers that equal the same engine's without speculation, token for token.

    Empty if the engine was not measured without speculation.
    """
    plain = next((each for each in arms if each.peer == arm.peer and each.way is Way.PLAIN), None)
    if plain is None:
        return {}
    wanted = {each.question_id: each.reply.answers[0].tokens for each in of(found, plain, 1)}
    pairs = [
        each.reply.answers[0].tokens == wanted[each.question_id]
        for each in of(found, arm, 1)
        if each.question_id in wanted
    ]
    return {"num_equal_alone": sum(pairs), "num_compared": len(pairs)}
