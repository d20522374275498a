"""What the controller keeps of each task, and what there is to see of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.control.acceptance_book import AcceptanceBook
from specdec.control.choices import COPY, Choice
from specdec.control.control_group import ControlGroup, MeasuredGain

NEWEST_WEIGHT = 0.1
"""Of an answer's length, in the mean of them."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What there is to see of a task."""

    choice: Choice | None
    """None where requests have decided for themselves so far."""
    num_draft_tokens: float
    """Guesses that the choice asks for, or that an offer of copies had; 0: the target alone."""
    estimated_gain: float
    """Of the choice over the target alone, at the present load; 1 for the target alone."""
    measured_gain: MeasuredGain | None
    alphas: tuple[tuple[str, float], ...]
    """α̂ by drafter."""
    num_switches: tuple[int, int]
    """Off and on, since the last report."""


@dataclass(slots=True)
class Task:
    """Not thread-safe: the controller's lock is held around it."""

    label: str
    mean_tokens: float = 0.0
    """Of an answer."""
    num_trials: int = 0
    num_routed: int = 0
    """Rounds of the drafter that it is routed to."""
    drafters: set[str] = field(default_factory=set)
    _control_group: ControlGroup = field(default_factory=ControlGroup)
    _choice: Choice | None = None
    _estimated_gain: float = 1.0
    _num_switches: list[int] = field(default_factory=lambda: [0, 0])

    def answered(self, seconds: float, num_tokens: int, *, is_control: bool | None) -> None:
        """A request ran to its end; see Controller.learn_request."""
        weight = NEWEST_WEIGHT if self.mean_tokens else 1.0
        self.mean_tokens += weight * (num_tokens - self.mean_tokens)
        if is_control is not None:
            self._control_group.add(seconds, num_tokens, is_plain=is_control)

    def chosen(self, choice: Choice, estimated_gain: float) -> None:
        """What its requests do from now on."""
        if self._choice is not None and self._choice.is_off != choice.is_off:
            self._num_switches[int(self._choice.is_off)] += 1
        self._choice, self._estimated_gain = choice, estimated_gain

    def report(self, book: AcceptanceBook) -> TaskReport:
        """Switches are counted anew behind it."""
        switches, self._num_switches = self._num_switches, [0, 0]
        num_draft_tokens = 0.0 if self._choice is None else float(self._choice.num_tokens)
        if self._choice is not None and self._choice.lead == COPY:
            num_draft_tokens = book.mean_drafted(self.label, COPY)
        return TaskReport(
            choice=self._choice,
            num_draft_tokens=num_draft_tokens,
            estimated_gain=self._estimated_gain,
            measured_gain=self._control_group.measured,
            alphas=tuple(
                (name, alpha)
                for name in sorted(self.drafters)
                for alpha, num_judged in [book.alpha(self.label, name)]
                if num_judged and not name.startswith(COPY)
            ),
            num_switches=(switches[0], switches[1]),
        )
