"""Keeps one tenant's flood from taking every place: dynamic thresholds.

A tenant may hold at most a fixed multiple of the free places (A. K. Choudhury and E. L. Hahne,
"Dynamic queue length thresholds for shared-memory packet switches", 1998). Above its bound it gets
no new place, so its answers that end leave theirs to others; tenants that flood one after another
can fill the server until then. Requests without a tenant are one group; it is bounded only while
named tenants ask too, so a server without tenants has no bound.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from specdec.errors import OverloadedError

TENANTS_COUNT_FOR_S = 600.0
"""Requests without a tenant are bounded for this long after a named tenant's latest request."""


class TenantShares:
    """Places held by each tenant. Not thread-safe."""

    def __init__(
        self, num_places: int, max_share: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`max_share`: the share of all places that one tenant alone can reach; 1 is no bound."""
        self._num_places = num_places
        self._max_share = max_share
        self._clock = clock
        self._held: Counter[str | None] = Counter()
        self._named_asked_s = float("-inf")
        """When a named tenant last asked."""

    def enter(self, tenant: str | None) -> None:
        """Take a place. Raises OverloadedError if none is free or this tenant may not have it."""
        num_held, num_taken = self._held[tenant], self._held.total()
        if tenant is not None:
            self._named_asked_s = self._clock()
        if num_taken >= self._num_places:
            raise OverloadedError(
                f"{num_taken} requests are in flight; the limit is {self._num_places}"
            )
        if self._has_tenants and num_held + 1 > self._bound(self._num_places - num_taken):
            name = "without a tenant" if tenant is None else f"of tenant {tenant!r}"
            raise OverloadedError(
                f"{num_held} requests {name} are in flight, and {num_taken} in all; the limit is "
                f"{self._num_places} and the rest is kept for other tenants (max_tenant_share "
                f"{self._max_share:g})"
            )
        self._held[tenant] += 1

    def leave(self, tenant: str | None) -> None:
        """Give a place back."""
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]

    def _bound(self, num_free: int) -> float:
        """Return how many places a tenant may hold where `num_free` are free; 1 at least."""
        if self._max_share >= 1:
            return self._num_places
        return max(1.0, num_free * self._max_share / (1 - self._max_share))

    @property
    def _has_tenants(self) -> bool:
        return self._clock() - self._named_asked_s < TENANTS_COUNT_FOR_S
