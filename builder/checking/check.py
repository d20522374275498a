"""All checks of a pair, in order, and what they found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.checking.checkpoints import check_checkpoints, with_checkpoints
from builder.checking.drafters import check_drafters
from builder.checking.findings import ERROR, SEVERITIES, Finding
from builder.checking.hardware import check_hardware
from builder.checking.limits import check_limits
from builder.checking.match import check_match
from builder.checking.memory import check_memory
from builder.checking.values import check_values
from builder.checking.versions import check_versions
from builder.description import PairDescription
from builder.memory import KvShare, MemoryPlan, Remedy, kv_shares, plan_memory, remedies

CHECKS = (check_drafters, check_limits, check_match, check_hardware, check_versions)


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked and what came out."""

    pair: PairDescription
    """With the shapes of checkpoints that were at hand."""
    findings: tuple[Finding, ...]
    """Errors first."""
    plan: MemoryPlan | None
    """None: values are wrong that it would be computed from."""
    shares: tuple[KvShare, ...] = ()
    """Empty where nothing is shared: no GPU, or too little room."""
    remedies: tuple[Remedy, ...] = ()

    @property
    def is_buildable(self) -> bool:
        return not any(each.severity == ERROR for each in self.findings)


def check_description(
    pair: PairDescription, checkpoints: Mapping[str, Path] | None = None
) -> Report:
    """Check a pair; `checkpoints` (engine name: directory) override and test what the file says.

    Raises BuildError for a checkpoint of an engine that the pair does not have.
    """
    pair, found = with_checkpoints(pair, checkpoints or {})
    wrong = list(check_values(pair))
    if wrong:
        return Report(pair, _sorted([*found, *wrong]), None)
    for check in CHECKS:
        found += check(pair)
    found += check_checkpoints(pair)
    plan = plan_memory(pair)
    shares = kv_shares(pair, plan)
    helpful = remedies(pair, plan)
    found += check_memory(pair, plan, shares, helpful)
    return Report(pair, _sorted(found), plan, shares, tuple(helpful))


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda each: SEVERITIES.index(each.severity)))
