"""The settings of the control plane."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.settings.parameters import parameter
from specdec.steering.settings import ControlSettings


@dataclass(frozen=True, slots=True)
class ControlPlaneSettings:
    """The controller's own settings, and the files of its measurements."""

    controller: ControlSettings
    state_file: str = parameter("", name="control_state_file")
    """File that keeps the controller's measurements over a restart; empty for none."""
    profile: str = parameter("", name="control_profile")
    """File from `specdec build profile` with which the controller begins; empty for none. If
    `control_state_file` has the same measured times, those in the newer file are used."""
