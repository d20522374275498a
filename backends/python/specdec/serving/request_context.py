"""The request context: everything that is known about a request when its drafter is built."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec.acceptance.sampling import SamplingParams
from specdec.constraints.constraint import Constraint
from specdec.engines.protocol import EngineClock
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.serving.admission.in_flight import RequestInFlight
from specdec.serving.request.request import GenerationRequest
from specdec.serving.task_labels import RequestTask
from specdec.token_ids import TokenIds

BANDS = ((0.5, "cool"), (0.85, "warm"), (math.inf, "hot"))
"""Temperature ranges as pairs (upper limit, name); each range has its own acceptance estimates."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestContext:
    """The parts of a request from which its drafter is built."""

    request: GenerationRequest
    request_id: str
    """Unique id; the ids of the request's engine calls begin with it."""
    prompt: TokenIds
    """Prompt tokens, [n] int32."""
    sampling: Sampling
    end_id: int | None
    """Token that ends the answer; None if there is none."""
    in_flight: RequestInFlight
    clock: EngineClock
    """Sum of the times that draft engines report for this request."""
    task: RequestTask
    constraint: Constraint | None = None
    """The request's guide for the target's vocabulary; None without a guide."""

    @property
    def band(self) -> str:
        """The label under which the request's acceptance is measured: see `band_of`."""
        return band_of(self.request.sampling, self.sampling)


def band_of(params: SamplingParams, sampling: Sampling) -> str:
    """Return the label of how tokens are drawn and verified; each has its own estimates.

    Examples are `greedy`, `warm`, `rejection warm` for verification by probabilities, and `guided
    greedy` for a greedy request with a guide.
    """
    guided = "guided " if params.guide is not None else ""
    if params.is_greedy:
        return f"{guided}greedy"
    warmth = next(name for limit, name in BANDS if params.temperature <= limit)
    rule = f"{sampling.verification} " if sampling.verifies_by_probability else ""
    return f"{guided}{rule}{warmth}"
