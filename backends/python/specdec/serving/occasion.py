"""The request context: everything that is known of a request when its drafter is built."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec.engines.protocol import EngineClock, TokenIds
from specdec.engines.sampling_inputs import Sampling
from specdec.serving.flight import Flight
from specdec.serving.request import GenerationRequest
from specdec.serving.task_labels import Task

BANDS = ((0.5, "cool"), (0.85, "warm"), (math.inf, "hot"))
"""Ranges of temperature that share acceptance estimates: the upper limit and the name of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Occasion:
    """A request with its prompt, its sampling and its calls, from which its drafter is built."""

    request: GenerationRequest
    request_id: str
    """Unique id, with which the ids of its engine calls begin."""
    prompt: TokenIds
    """Prompt tokens, [n] int32."""
    sampling: Sampling
    end_id: int | None
    """Token that ends the answer; None if there is none."""
    flight: Flight
    clock: EngineClock
    """Time that draft engines work for this request."""
    task: Task

    @property
    def band(self) -> str:
        """Label of how tokens are drawn and verified; each has acceptance estimates of its own.

        Examples are `greedy`, `warm` and, for verification by probabilities, `rejection warm`.
        """
        params, sampling = self.request.sampling, self.sampling
        if params.is_greedy:
            return "greedy"
        warmth = next(name for limit, name in BANDS if params.temperature <= limit)
        return f"{sampling.verification} {warmth}" if sampling.is_judged else warmth
