"""An admitted request with everything it needs."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.drafting.protocol import Drafter
from specdec.engines.protocol import EngineClock, EngineCounts, TargetEngine, TokenIds
from specdec.serving.flight import Flight
from specdec.serving.request import GenerationRequest
from specdec.serving.text_stream import Decode


@dataclass(frozen=True, slots=True)
class JobEngines:
    """Who answers a request, and how."""

    target: TargetEngine
    drafter: Drafter | None
    """None for a target that speculates by itself."""
    verification: str
    """What is done with drafts; "off" without any."""
    decode: Decode | None = None
    """The text of the target's tokens, one after the other; None for the tokenizer's."""
    counts: EngineCounts | None = None
    """Of a target that speculates by itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """What an answerer works on."""

    request: GenerationRequest
    prompt: TokenIds
    seed: int
    """The request's, or the one drawn for it."""
    flight: Flight
    engines: JobEngines
    target_clock: EngineClock
    draft_clock: EngineClock
    task_label: str
    arrival_s: float
    """time.perf_counter() when the request came."""
