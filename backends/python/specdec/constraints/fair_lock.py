"""A lock that tenants get in turn, however many threads of one tenant wait for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FairLock:
    """A lock for one thread at a time; thread-safe.

    A thread waits for at most one turn of each other tenant, and for all earlier threads of its
    own.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[object]] = {}
        """Waiting threads by tenant; the tenant whose turn it is comes first."""
        self._is_held = False

    @contextmanager
    def held(self, tenant: str) -> Iterator[None]:
        """Wait for the lock and hold it; an empty `tenant` is a tenant too."""
        own = object()
        with self._changed:
            self._waiting.setdefault(tenant, deque()).append(own)
            self._changed.wait_for(lambda: not self._is_held and self._first() is own)
            left = self._waiting.pop(tenant)
            left.popleft()
            if left:
                self._waiting[tenant] = left
            self._is_held = True
        try:
            yield
        finally:
            with self._changed:
                self._is_held = False
                self._changed.notify_all()

    def _first(self) -> object:
        return next(iter(self._waiting.values()))[0]
