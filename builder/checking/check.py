"""Running all checks of a pair, and the report of what they found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specdec.builder.checking.checkpoints import check_checkpoints, with_checkpoints
from specdec.builder.checking.drafters import check_drafters
from specdec.builder.checking.findings import ERROR, SEVERITIES, Finding
from specdec.builder.checking.hardware import check_hardware
from specdec.builder.checking.limits import check_limits
from specdec.builder.checking.match import check_match
from specdec.builder.checking.memory import check_memory
from specdec.builder.checking.values import check_values
from specdec.builder.checking.versions import check_versions
from specdec.builder.description import PairDescription
from specdec.builder.memory import KvShare, MemoryPlan, Remedy, kv_shares, plan_memory, remedies

CHECKS = (check_drafters, check_limits, check_match, check_hardware, check_versions)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of all checks of a pair."""

    pair: PairDescription
    """The checked pair, with the shapes of the given checkpoints."""
    findings: tuple[Finding, ...]
    """Findings, errors first, then warnings and notes."""
    plan: MemoryPlan | None
    """Memory plan; None if values that it needs are wrong."""
    shares: tuple[KvShare, ...] = ()
    """Share of each KV cache; empty without a GPU or if the pair does not fit."""
    remedies: tuple[Remedy, ...] = ()
    """Changes that save memory, the largest saving first."""

    @property
    def is_buildable(self) -> bool:
        """Whether no finding is an error."""
        return not any(each.severity == ERROR for each in self.findings)


def check_description(
    pair: PairDescription, checkpoints: Mapping[str, Path] | None = None
) -> Report:
    """Run all checks on a pair and return the report.

    `checkpoints` are Hugging Face directories by engine name, or HEAD for the head of
    [self_speculation]. They replace those of the pair file, and the file's shapes are compared with
    theirs. If basic values are wrong, the other checks are left out. Raises BuildError for a
    checkpoint of an engine that the pair does not have.
    """
    pair, found = with_checkpoints(pair, checkpoints or {})
    impossible = list(check_values(pair))
    if impossible:
        return Report(pair, _sorted([*found, *impossible]), None)
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
