"""As tensorrt_llm/_torch/pyexecutor/scheduler.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ScheduledRequests:
    """The requests of one step."""

    context_requests: list[Any] = field(default_factory=list)
    generation_requests: list[Any] = field(default_factory=list)
