"""Define a job: an admitted request and everything that is needed to answer it."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.drafting.protocol import Drafter
from specdec.engines.protocol import EngineClock, EngineCounts, TargetEngine
from specdec.serving.admission.in_flight import RequestInFlight
from specdec.serving.request.request import GenerationRequest
from specdec.serving.text.text_stream import Decode
from specdec.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class JobEngines:
    """The target and the drafter of a request, and how drafts are verified."""

    target: TargetEngine
    drafter: Drafter | None
    """The request's drafter; None for a target that speculates by itself."""
    verification: str
    """Verification mode; `off` without speculation, `engine` if the target speculates by itself."""
    decode: Decode | None = None
    """Decoder that turns the target's tokens into text, one by one; None to use the tokenizer."""
    counts: EngineCounts | None = None
    """Draft tokens counted by a target that speculates by itself; None for other targets."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that an Answerer needs for one request."""

    request: GenerationRequest
    prompt: TokenIds
    """Token ids of the prompt, [n ≥ 1] int32."""
    seed: int
    """The seed of the request, or one that was drawn for it."""
    in_flight: RequestInFlight
    """The request as the watchdog sees it; says whether the answer may go on."""
    engines: JobEngines
    target_clock: EngineClock
    draft_clock: EngineClock
    task_label: str
    """The task's name in metrics and measurements."""
    arrival_s: float
    """time.perf_counter() when the request arrived."""
