"""The settings of the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from specdec.settings.lists import read_pairs
from specdec.settings.parameters import parsed


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """How a request gets its task, and what depends on it."""

    classify_tasks: bool = True
    """Whether rules derive the task, `auto:<task>`, of a request that names none."""
    drafter_by_task: Mapping[str, str] = parsed(
        "task_drafters", partial(read_pairs, form="task=drafter")
    )
    """Drafter to begin with, by task. It drafts until it was measured on the task; in a mode that
    does not measure, always. An entry also holds for `auto:<task>`."""
    acceptance_by_tenant: bool = False
    """Whether each tenant has its own acceptance estimates; task labels are then `tenant/task`."""
