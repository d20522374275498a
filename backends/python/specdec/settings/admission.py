"""The settings of the requests in flight, and of how they end."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.errors import ConfigurationError
from specdec.settings.parameters import parameter

CALLS_PER_REQUEST = 3
"""Most calls of engines that a request has open at once: the one that it waits for, one that drafts
ahead, and one that an engine was asked to end but has not ended yet."""


def max_open_calls(inflight_limit: int) -> int:
    """Return how many calls of engines all requests may have open at once.

    Each call holds a thread, both here and in the Python backend's pool for BLS (its
    `thread-pool-size`). A call that finds none waits for calls of other requests.
    """
    return CALLS_PER_REQUEST * inflight_limit


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """How many requests may be in flight, and how their end is noticed."""

    inflight_limit: int = parameter(64, minimum=1)
    """Most requests in flight; further ones are refused. The Python backend's `thread-pool-size`
    must be at least `max_open_calls` of it."""
    max_tenant_share: float = 0.75
    """Share of `inflight_limit` that a tenant can hold while it is the only one, above 0; 1 sets no
    bound. Each of several tenants gets less, so that some slots stay free (tenant_shares.py)."""
    cancellation_check_period_ms: int = parameter(50, minimum=1)
    """Milliseconds between two checks of the requests in flight, for clients that have gone and
    deadlines that have passed."""
    exit_on_dead_engine: bool = False
    """Whether to end tritonserver when the target is dead or hung, once clients have their errors.
    Only for a tritonserver that Kubernetes restarts; `specdec serve` restarts it by itself."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a wrong share."""
        if not 0 < self.max_tenant_share <= 1:
            raise ConfigurationError(
                f"max_tenant_share must be above 0 and at most 1; given {self.max_tenant_share:g}"
            )
