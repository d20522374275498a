"""What is known of a request when its drafter is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec.engines.protocol import EngineClock, TokenIds
from specdec.engines.sampling_inputs import Sampling
from specdec.serving.flight import Flight
from specdec.serving.request import GenerationRequest
from specdec.serving.task_labels import Task

BANDS = ((0.5, "cool"), (0.85, "warm"), (math.inf, "hot"))
"""Temperatures up to each limit are counted together."""


@dataclass(frozen=True, slots=True, eq=False)
class Occasion:
    """What a drafter of one request works with."""

    request: GenerationRequest
    request_id: str
    prompt: TokenIds
    sampling: Sampling
    end_id: int | None
    flight: Flight
    clock: EngineClock
    task: Task

    @property
    def band(self) -> str:
        """Acceptance is counted apart where tokens are drawn or verified in another way."""
        params, sampling = self.request.sampling, self.sampling
        if params.is_greedy:
            return "greedy"
        warmth = next(name for limit, name in BANDS if params.temperature <= limit)
        return f"{sampling.verification} {warmth}" if sampling.is_judged else warmth
