"""Assess a server's processes: which are dead or hung, and whether a token can come."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdec.health.board import Beat, Role, State
from specdec.health.processes import DIED

HANG_VARIABLE = "SPECDEC_HANG_S"
DEFAULT_HANG_S = 10.0
"""Seconds; longer than any pass or chunk of a prompt takes on two busy cores."""


def hang_limit_s(environment: Mapping[str, str] = os.environ) -> float:
    """Return after how many seconds without a heartbeat a process with work counts as hung."""
    return float(environment.get(HANG_VARIABLE, "") or DEFAULT_HANG_S)


def fault_in(beat: Beat, hang_s: float, now_s: float | None = None) -> str:
    """Return what is wrong with a model process, empty for nothing.

    Loading may take any time. If a process dies while it loads, Triton reports it, and an earlier
    version of its model goes on serving.
    """
    if fault := beat.process_fault:
        is_refused = beat.state is State.LOADING and fault == DIED
        return "" if is_refused else f"the process of {beat.model} {fault}"
    if beat.state is State.FAILED:
        return f"the loop of {beat.model} has ended by an error"
    age_s = (time.monotonic() if now_s is None else now_s) - beat.beat_s
    if beat.state is not State.LOADING and beat.has_work and age_s > hang_s:
        return f"{beat.model} hangs: work waits, and it has done no step for {age_s:.1f} s"
    return ""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The faults of a server's model processes; each text is empty where there is none."""

    fatal: str
    """Why no token can come until the server is started again."""
    degraded: str
    """A draft engine that is dead: answers stay right, and come without it."""
    waiting: str
    """The model that is not ready yet."""

    @property
    def is_ready(self) -> bool:
        return not self.fatal and not self.waiting


def assess(
    beats: Sequence[Beat], others: Mapping[str, str], hang_s: float, now_s: float | None = None
) -> Assessment:
    """Assess the processes on the board, and `others` (model → fault) that are not on it."""
    needed = {name for each in beats for name in each.needs}
    has_orchestrator = any(each.role is Role.ORCHESTRATOR for each in beats)
    found = [*others.items(), *((each.model, fault_in(each, hang_s, now_s)) for each in beats)]
    faults = {model: fault for model, fault in found if fault}
    orchestrators = {each.model for each in beats if each.role is Role.ORCHESTRATOR}
    fatal = [
        fault
        for model, fault in faults.items()
        if not has_orchestrator or model in needed | orchestrators
    ]
    degraded = [fault for fault in faults.values() if fault not in fatal]
    serving = {each.model for each in beats if each.state is State.SERVING}
    loading = {
        each.model for each in beats if each.state is State.LOADING and not each.process_fault
    }
    return Assessment(
        "; ".join(fatal),
        "; ".join(degraded),
        f"loading {', '.join(sorted(loading - serving))}" if loading - serving else "",
    )
