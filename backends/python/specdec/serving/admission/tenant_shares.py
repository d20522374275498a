"""Keep one tenant from taking every slot for requests in flight, by dynamic thresholds.

A tenant may hold at most a fixed multiple of the free slots (A. K. Choudhury and E. L. Hahne,
"Dynamic queue length thresholds for shared-memory packet switches", 1998). At its bound it gets no
new slot, and the slots that it frees go to others. No slot is taken back early, so tenants that
flood the server one after another can still fill it until their answers finish.

Requests without a tenant count as one group. It has a bound only while named tenants send requests
too, so a server without tenants has none.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from specdec.errors import OverloadedError

TENANTS_COUNT_FOR_S = 600.0
"""Seconds for which a named tenant's request bounds the requests without a tenant."""


class TenantShares:
    """The slots for requests in flight, and how many each tenant holds. Not thread-safe."""

    def __init__(
        self, num_slots: int, max_share: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with `num_slots` free slots.

        `max_share`, above 0, is the share of all slots that a tenant can hold while it is the only
        one; 1 sets no bound. `clock` returns seconds.
        """
        self._num_slots = num_slots
        self._max_share = max_share
        self._clock = clock
        self._held: Counter[str | None] = Counter()
        self._named_asked_s = float("-inf")
        """Time of a named tenant's last request, by the clock; -∞ before the first."""

    def enter(self, tenant: str | None) -> None:
        """Take a slot. Raises OverloadedError if none is free or the tenant is at its bound."""
        num_held, num_taken = self._held[tenant], self._held.total()
        if tenant is not None:
            self._named_asked_s = self._clock()
        if num_taken >= self._num_slots:
            raise OverloadedError(
                f"{num_taken} requests are in flight; the limit is {self._num_slots}"
            )
        if self._has_tenants and num_held + 1 > self._bound(self._num_slots - num_taken):
            name = "without a tenant" if tenant is None else f"of tenant {tenant!r}"
            raise OverloadedError(
                f"{num_held} requests {name} are in flight, and {num_taken} in all; the limit is "
                f"{self._num_slots} and the rest is kept for other tenants (max_tenant_share "
                f"{self._max_share:g})"
            )
        self._held[tenant] += 1

    def leave(self, tenant: str | None) -> None:
        """Give back one of the tenant's slots."""
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]

    def _bound(self, num_free: int) -> float:
        """Return how many slots a tenant may hold while `num_free` are free; at least 1."""
        if self._max_share >= 1:
            return self._num_slots
        return max(1.0, num_free * self._max_share / (1 - self._max_share))

    @property
    def _has_tenants(self) -> bool:
        return self._clock() - self._named_asked_s < TENANTS_COUNT_FOR_S
