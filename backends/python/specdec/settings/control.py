"""The settings of the controller and of the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from specdec.settings.lists import read_pairs
from specdec.settings.parameters import parameter, parsed
from specdec.steering.modes import AUTO
from specdec.steering.settings import ControlSettings


@dataclass(frozen=True, slots=True)
class ControlParameters(ControlSettings):
    """The controller's settings, and the files of its measurements."""

    mode: str = parameter(AUTO, name="speculation")
    """Mode for requests that leave drafter and k open. `auto`: choices by measurement. `fixed`: the
    default drafter with its configured k. `off`: no speculation. `schedule`: the default drafter
    with k from `speculation_schedule`. `article`: the default drafter, switched on above 0.6
    accepted ÷ drafted, off below 0.5, and unchanged between."""
    schedule: str = parameter("", name="speculation_schedule")
    """Rules of the mode `schedule`, such as `load<=2:6, 22-6h:4, 12-14h:2, else:1`. Each rule has a
    condition and k; 0 is off. The first rule whose condition holds decides."""
    control_share: float = 0.01
    """Share of requests in the control group, which runs without speculation for comparison."""
    state_file: str = parameter("", name="control_state_file")
    """File that keeps the controller's measurements over a restart; empty for none."""
    profile: str = parameter("", name="control_profile")
    """File from `specdec build profile` with which the controller begins; empty for none. If
    `control_state_file` has the same measured times, those in the newer file are used."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """How a request gets its task, and what depends on it."""

    classify_tasks: bool = True
    """Whether rules derive the task, `auto:<task>`, of a request that names none."""
    drafters: Mapping[str, str] = parsed("task_drafters", partial(read_pairs, form="task=drafter"))
    """Drafter to begin with, by task. It drafts until it was measured on the task; in a mode that
    does not measure, always. An entry also holds for `auto:<task>`."""
    acceptance_by_tenant: bool = False
    """Whether each tenant has its own acceptance estimates; task labels are then `tenant/task`."""
