"""What is known of a request when its drafter is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.engines.protocol import EngineClock, TokenIds
from specdec.engines.sampling_inputs import Sampling
from specdec.serving.flight import Flight
from specdec.serving.request import GenerationRequest


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
