"""The interface by which drafters in an engine's batch call draft models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from specdec.drafting.models.postponed import DraftCall


class DraftModels(Protocol):
    """The draft models of the server."""

    def draft(
        self, model: str, calls: Sequence[DraftCall], timeout_s: float
    ) -> list[tuple[int, ...]]:
        """Return the draft of each call, all of which are to this model; may be empty.

        Raises DraftTimeoutError after `timeout_s` seconds, and EngineFailedError if the model
        fails.
        """
