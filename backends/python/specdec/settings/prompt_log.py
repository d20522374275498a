"""The settings of the prompt log."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.errors import ConfigurationError
from specdec.settings.lists import read_names
from specdec.settings.parameters import parameter, parsed

ALL_TENANTS = "*"
"""Entry in the list of tenants that means all requests, those without a tenant included."""


@dataclass(frozen=True, slots=True)
class PromptLogSettings:
    """Where prompts are logged for `specdec build refresh`, and whose."""

    directory: str = parameter("", name="prompt_log_dir")
    """Folder that keeps a sample of prompts; empty for no log."""
    tenants: tuple[str, ...] = parsed("prompt_log_tenants", read_names)
    """Tenants that agreed; ALL_TENANTS for all requests."""
    share: float = parameter(0.01, name="prompt_log_share")
    """Probability that a request of these tenants is logged; above 0, at most 1."""
    max_mb: int = parameter(64, name="prompt_log_max_mb")
    """MiB that the log may take on disk; the oldest prompts are dropped first."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError if there is a log with wrong values or without tenants."""
        if not self.directory:
            return
        if not self.tenants:
            raise ConfigurationError(
                "prompt_log_dir is set and prompt_log_tenants is empty: name the tenants that "
                f"agreed, comma-separated, or {ALL_TENANTS!r} for all"
            )
        if not 0.0 < self.share <= 1.0:
            raise ConfigurationError(
                f"prompt_log_share must be above 0 and at most 1; given {self.share:g}"
            )
        if self.max_mb < 1:
            raise ConfigurationError(f"prompt_log_max_mb must be at least 1; given {self.max_mb}")
