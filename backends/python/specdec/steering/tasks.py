"""The controller's state of each task, and the report on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from specdec.steering.acceptance_estimates import AcceptanceEstimates
from specdec.steering.choices import COPIES, COPY_CHOICE, Choice, EstimatedDrafter
from specdec.steering.control_group import ControlGroup, MeasuredGain
from specdec.steering.estimates import Mean


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The state of a task for the metrics."""

    choice: Choice | None
    """Latest choice; None if the controller has not chosen for this task."""
    num_draft_tokens: float
    """Draft tokens per round of the choice, or the mean of a copy for COPY; 0 for off."""
    estimated_gain: float
    """Predicted speed-up of the choice at the load of that time; 1 for off."""
    measured_gain: MeasuredGain | None
    """Gain over the control group; None before there are enough requests."""
    alphas: tuple[tuple[str, float], ...]
    """Pairs of drafter and α̂, without copy drafters."""
    num_switches: tuple[int, int]
    """Switches to off, and from off to on, since the previous report."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object, for `from_json` in another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> TaskReport:
        """Read the result of `to_json`."""
        choice, gain = given["choice"], given["measured_gain"]
        num_off, num_on = given["num_switches"]
        return cls(
            choice=choice and Choice(**choice),
            num_draft_tokens=given["num_draft_tokens"],
            estimated_gain=given["estimated_gain"],
            measured_gain=gain and MeasuredGain(**gain),
            alphas=tuple((name, alpha) for name, alpha in given["alphas"]),
            num_switches=(num_off, num_on),
        )


@dataclass(slots=True)
class TaskState:
    """The state of one task. Callers hold the controller's lock."""

    label: str
    num_started: int = 0
    """Requests that have started."""
    answers: Mean = field(default_factory=Mean)
    """Mean tokens of an answer after its first round."""
    num_routed: int = 0
    """Rounds in which the drafter that the operator names for the task was asked."""
    drafters: set[str] = field(default_factory=set)
    """Names of the drafters that were asked, without the copy drafters."""
    _control_group: ControlGroup = field(default_factory=ControlGroup)
    _choice: Choice | None = None
    _estimated_gain: float = 1.0
    _num_switches: list[int] = field(default_factory=lambda: [0, 0])

    def answered(self, seconds: float, num_tokens: int, *, is_control: bool | None) -> None:
        """Add a request that ran to its end: see `Controller.learn_request`."""
        # The time does not change, so only newer answers reduce the weight of older ones.
        self.answers.add(float(num_tokens), self.answers.last_s)
        if is_control is not None:
            self._control_group.add(seconds, num_tokens, is_plain=is_control)

    def chosen(self, choice: Choice, estimated_gain: float) -> None:
        """Record the latest choice for a request of the task."""
        if self._choice is not None and self._choice.is_off != choice.is_off:
            self._num_switches[int(self._choice.is_off)] += 1
        self._choice, self._estimated_gain = choice, estimated_gain

    def take_report(self, acceptance: AcceptanceEstimates) -> TaskReport:
        """Return the report, and count switches from 0 again."""
        switches, self._num_switches = self._num_switches, [0, 0]
        num_draft_tokens = 0.0 if self._choice is None else float(self._choice.num_tokens)
        if self._choice == COPY_CHOICE:
            num_draft_tokens = acceptance.mean_drafted(self.label, COPIES)
        return TaskReport(
            choice=self._choice,
            num_draft_tokens=num_draft_tokens,
            estimated_gain=self._estimated_gain,
            measured_gain=self._control_group.measured,
            alphas=tuple(
                (name, alpha)
                for name in sorted(self.drafters)
                for alpha, num_compared in [acceptance.alpha(self.label, EstimatedDrafter(name))]
                if num_compared
            ),
            num_switches=(switches[0], switches[1]),
        )
