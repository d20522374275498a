"""The controller's settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.errors import ConfigurationError
from specdec.steering.modes import AUTO_MODE, MODES, SCHEDULE_MODE, Rule, parse_schedule


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """The operator's settings of the controller. Invalid values raise ConfigurationError."""

    # The metadata `name` is the name of the parameter in config.pbtxt.
    mode: str = field(default=AUTO_MODE, metadata={"name": "speculation"})
    """Mode for requests that leave drafter and k open. `auto`: choices by measurement. `fixed`: the
    default drafter with its configured k. `off`: no speculation. `schedule`: the default drafter
    with k from `speculation_schedule`. `article`: the default drafter, switched on above 0.6
    accepted ÷ drafted, off below 0.5, and unchanged between."""
    schedule: str = field(default="", metadata={"name": "speculation_schedule"})
    """Rules of the mode `schedule`, such as `load<=2:6, 22-6h:4, 12-14h:2, else:1`. Each rule has a
    condition and k; 0 is off. The first rule whose condition holds decides. Other modes have
    none."""
    control_share: float = 0.01
    """Share of requests in the control group, which runs without speculation for comparison."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.mode not in MODES:
            raise ConfigurationError(
                f"speculation must be one of {', '.join(MODES)}; given {self.mode!r}"
            )
        if not 0.0 <= self.control_share <= 0.5:
            raise ConfigurationError(
                f"control_share must be from 0 to 0.5; given {self.control_share:g}"
            )
        if (self.mode == SCHEDULE_MODE) != bool(self.rules):
            raise ConfigurationError(
                "speculation_schedule and speculation = schedule belong together; given "
                f"{self.schedule!r} and {self.mode!r}"
            )

    @property
    def rules(self) -> tuple[Rule, ...]:
        return parse_schedule(self.schedule)
