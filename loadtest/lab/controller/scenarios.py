"""The scenarios of `specdec bench replay`: phases with their tasks, loads and stale drafts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec.loadtest.lab.controller.default_pair import CANDIDATES, HEADS
from specdec.loadtest.lab.controller.trace import Trace
from specdec.loadtest.lab.controller.world import Phase

REJECTED, STALE = dict.fromkeys(CANDIDATES, 1.0), dict.fromkeys(HEADS, 0.8)
"""Shares of each drafter's drafts that are wholly rejected."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Phases one after another, under one controller."""

    name: str
    phases: tuple[Phase, ...]
    before: Phase | None = None
    """A phase that comes first and is not scored."""


def scenarios(trace: Trace, num_tokens: int) -> tuple[Scenario, ...]:
    """Return all scenarios.

    A phase with fewer than 16 streams has `num_tokens` tokens; with more, it is longer in
    proportion.
    """
    tasks = tuple(dict.fromkeys(each.task for each in trace.answers))

    def phase(name: str, num_streams: int = 1, **more: object) -> Phase:
        total = num_tokens * max(1, num_streams // 8)
        return replace(Phase(name, total, num_streams, tasks), **more)  # type: ignore[arg-type]

    alone = [Scenario(f"task {task}", (phase(task, tasks=(task,)),)) for task in tasks]
    together = [
        Scenario(f"all tasks, {load} streams", (phase(f"all at {load}", load),))
        for load in (1, 4, 16, 48)
    ]
    first, second = tasks[: len(tasks) // 2], tasks[len(tasks) // 2 :]
    return (
        *alone,
        *together,
        Scenario("rejected drafts", (phase("rejected drafts", stale=REJECTED),)),
        Scenario(
            "the mix shifts under one label",
            (
                phase("one half", tasks=first, label="default"),
                phase("other half", tasks=second, label="default"),
                phase("one half again", tasks=first, label="default"),
            ),
        ),
        Scenario(
            "load ramp",
            tuple(
                phase(f"{number}: {load} streams", load)
                for number, load in enumerate((1, 4, 16, 48, 16, 4, 1), start=1)
            ),
        ),
        Scenario(
            "a draft goes stale",
            (phase("fresh"), phase("stale", stale=STALE), phase("refreshed", swapped=tuple(STALE))),
        ),
        Scenario(
            "after a slow first answer",
            (phase("after a slow first answer"),),
            before=phase("first answer", num_tokens=4, num_slow_tokens=4),
        ),
        Scenario(
            "the machine is busy for 600 tokens",
            (
                phase("at the start", num_slow_tokens=600),
                phase("again", num_slow_tokens=600),
            ),
        ),
    )
