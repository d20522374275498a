"""The settings of the prompt log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.errors import ConfigurationError

ALL_TENANTS = "*"
"""Entry in the list of tenants that means all requests, those without a tenant included."""


@dataclass(frozen=True, slots=True)
class PromptLogSettings:
    """Settings of the prompt log.

    Raises ConfigurationError if no tenant is named or a number is out of range.
    """

    directory: Path
    tenants: frozenset[str]
    """Tenants that agreed, or ALL_TENANTS."""
    share: float
    """Probability that a request of these tenants is logged; above 0, at most 1."""
    max_bytes: int
    """Bytes that both files may take together; at least 1 MiB."""

    def __post_init__(self) -> None:
        if not self.tenants:
            raise ConfigurationError(
                "prompt_log_dir is set and prompt_log_tenants is empty: name the tenants that "
                f"agreed, comma-separated, or {ALL_TENANTS!r} for all"
            )
        if not 0.0 < self.share <= 1.0:
            raise ConfigurationError(
                f"prompt_log_share must be above 0 and at most 1; given {self.share:g}"
            )
        if self.max_bytes < 1 << 20:
            raise ConfigurationError(
                f"prompt_log_max_mb must be at least 1; given {self.max_bytes >> 20}"
            )
