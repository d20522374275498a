"""As tensorrt_llm/_torch/pyexecutor/resource_manager.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class BaseResourceManager(ABC):
    """The base class of managers of resources."""

    @abstractmethod
    def get_max_resource_count(self) -> int:
        """Return how many requests there may be."""

    @abstractmethod
    def get_needed_resource_to_completion(self, request: Any) -> int:
        """Return what a request still needs."""

    def add_dummy_requests(self, request_ids: list[int]) -> None:  # noqa: B027 - as upstream's
        """Take requests of a warm-up."""

    def prepare_resources(self, scheduled_batch: Any) -> None:  # noqa: B027 - as upstream's
        """Called before a step."""

    def update_resources(self, scheduled_batch: Any) -> None:  # noqa: B027 - as upstream's
        """Called after a step."""

    def free_resources(self, request: Any) -> None:  # noqa: B027 - as upstream's
        """Called when a request ends or is paused."""
