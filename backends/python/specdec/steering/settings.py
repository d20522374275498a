"""The controller's settings."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.errors import ConfigurationError
from specdec.steering.modes import AUTO, MODES, SCHEDULE, Rule, parse_schedule


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """The operator's settings of the controller. Invalid values raise ConfigurationError."""

    mode: str = AUTO
    """Mode of the server, one of `modes.MODES`."""
    schedule: str = ""
    """Rules of the mode `schedule`: see `modes.parse_schedule`; empty in other modes."""
    control_share: float = 0.01
    """Share of requests in the control group."""

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
        if (self.mode == SCHEDULE) != bool(self.rules):
            raise ConfigurationError(
                "speculation_schedule and speculation = schedule belong together; given "
                f"{self.schedule!r} and {self.mode!r}"
            )

    @property
    def rules(self) -> tuple[Rule, ...]:
        return parse_schedule(self.schedule)
