"""Assess a server's processes: which are dead or hung, and whether it can answer requests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specdec.health.board import Beat, Role, State
from specdec.health.processes import DIED, STOPPED, fault_of

HANG_VARIABLE = "SPECDEC_HANG_S"
"""Environment variable with the hang limit: seconds without a heartbeat after which a process
counts as hung."""
DEFAULT_HANG_S = 10.0
"""Default of the hang limit in seconds, longer than any pass or chunk of a prompt takes on two busy
cores."""
STOPPED_S = 0.5
"""Seconds after which a stopped process counts as a fault; profilers stop processes for
milliseconds."""
ANSWER_S = 1.0
"""Seconds that orchestrators have to tell clients of a dead engine before the server is ended."""
SETTLE_S = 0.3
"""Seconds that Triton has to send the last responses that it was given."""
PAUSE_S = 2.0
"""Seconds between two looks above which the watcher itself was paused, as by `docker pause` or a
migration. The server's processes were paused too, so their silence before the pause's end does not
count."""


def hang_limit_s(environment: Mapping[str, str] = os.environ) -> float:
    """Return the hang limit in seconds; raise ValueError if SPECDEC_HANG_S is no number."""
    return float(environment.get(HANG_VARIABLE, "") or DEFAULT_HANG_S)


@dataclass(frozen=True, slots=True)
class Assessment:
    """The faults of a server's processes, as one text for each kind; empty for no fault."""

    fatal: str
    """Faults that keep the server from answering until it is started again."""
    degraded: str
    """Faults of models that no answer needs, such as draft models; answers come without them."""
    waiting: str
    """Reason why the server is not ready yet; it may go away by itself."""

    @property
    def is_ready(self) -> bool:
        """Whether requests can be answered."""
        return not self.fatal and not self.waiting


class Watch:
    """The watcher of one server's processes, which looks for faults again and again.

    Only one thread may use it.
    """

    def __init__(self, hang_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the hang limit and a clock, both in seconds."""
        self._hang_s = hang_s
        self._clock = clock
        self._looked_s = self._awake_since_s = clock()
        self._stopped_since_s: dict[int, float] = {}
        """Times by `clock` at which stopped processes were first seen stopped, by process id."""
        self._seen: dict[str, Role] = {}
        """Roles by name of all models that were ever seen in state SERVING."""

    def look(self) -> None:
        """Note the time and notice a pause; call this first in each look."""
        now_s = self._clock()
        if now_s - self._looked_s > PAUSE_S:
            self._awake_since_s = now_s
        self._looked_s = now_s

    def silent_s(self, last_s: float) -> float:
        """Return the seconds since a process last reported, at `last_s` by `clock`.

        Time before the end of the watcher's last pause does not count.
        """
        return self._looked_s - max(last_s, self._awake_since_s)

    def process_fault(self, pid: int, start_ticks: int | None = None) -> str:
        """Return why a process cannot work, DIED or STOPPED; empty if it can.

        STOPPED is returned only after STOPPED_S. `start_ticks` (ProcessStatus) distinguishes the
        process from a later one with the same id.
        """
        fault = fault_of(pid, start_ticks)
        if fault != STOPPED:
            self._stopped_since_s.pop(pid, None)
            return fault
        since_s = self._stopped_since_s.setdefault(pid, self._looked_s)
        return fault if self.silent_s(since_s) > STOPPED_S else ""

    def fault_in(self, beat: Beat) -> str:
        """Return the fault of a model process; empty for none.

        Loading may take any time. A process that dies while it loads has no fault here: Triton
        reports it, and goes on serving the model's earlier version.
        """
        if fault := self.process_fault(beat.pid, beat.start_ticks):
            is_refused = beat.state is State.LOADING and fault == DIED
            return "" if is_refused else f"the process of {beat.model} {fault}"
        if beat.state is State.FAILED:
            return f"the loop of {beat.model} has ended by an error"
        silent_s = self.silent_s(beat.beat_s)
        if beat.state is not State.LOADING and silent_s > self._hang_s:
            return f"{beat.model} hangs: no heartbeat for {silent_s:.1f} s"
        return ""

    def assess(self, beats: Sequence[Beat], others: Mapping[str, str]) -> Assessment:
        """Assess the processes on the board, and `others`: faults by model of processes not on it.

        A fault is fatal in an orchestrator, and in a model that an orchestrator needs. Without an
        orchestrator every fault is fatal.
        """
        found = [*others.items(), *((each.model, self.fault_in(each)) for each in beats)]
        faults = {model: fault for model, fault in found if fault}
        self._seen |= {each.model: each.role for each in beats if each.state is State.SERVING}
        needed = {name for each in beats for name in each.needs}
        orchestrators = {each.model for each in beats if each.role is Role.ORCHESTRATOR}
        fatal = [
            fault
            for model, fault in faults.items()
            if not orchestrators or model in needed | orchestrators
        ]
        return Assessment(
            "; ".join(fatal),
            "; ".join(fault for fault in faults.values() if fault not in fatal),
            self._waiting(beats, needed),
        )

    def _waiting(self, beats: Sequence[Beat], needed: set[str]) -> str:
        """Return one line about models that load or that are needed but were unloaded."""
        serving = {each.model for each in beats if each.state is State.SERVING}
        loading = {
            each.model for each in beats if each.state is State.LOADING and not each.process_fault
        }
        if loading - serving:
            return f"loading {', '.join(sorted(loading - serving))}"
        present = {each.model for each in beats}
        gone = {model for model in needed - present if model in self._seen}
        if not any(each.role is Role.ORCHESTRATOR for each in beats):
            gone |= {name for name, role in self._seen.items() if role is Role.ORCHESTRATOR}
        return f"{', '.join(sorted(gone))}: not loaded" if gone else ""
