"""Calls of an engine, wherever it runs: in the terms of the `tensorrtllm` contract."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from specdec.engines.protocol import NO_DRAFT, Draft, EngineClock, TokenIds
from specdec.engines.sampling_inputs import Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Generate behind a context, or verify a draft there; the rest is the request's own."""

    context: TokenIds
    """[n] int32."""
    max_new_tokens: int
    end_id: int | None
    draft: Draft = NO_DRAFT
    returns_logits: bool = False
    """What the tokens were drawn from comes with them."""
    streaming: bool = False
    """A response for each step, instead of one for all."""


class Said(NamedTuple):
    """What one response of an engine adds."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()
    logits: npt.NDArray[np.float32] | None = None
    num_accepted: int | None = None
    num_drafted: int | None = None
    next_drafts: tuple[int, ...] = ()
    next_parents: tuple[int, ...] = ()


class EngineCalls(Protocol):
    """The calls of one request to one engine, one after the other.

    `abort` may be called from another thread; it also reaches a call that is still on its way to
    the engine, because it is repeated until the request has ended.
    """

    @property
    def can_stream(self) -> bool:
        """A streaming call is safe; over BLS it is where its responses wait for their reader."""

    def run(self, call: Call) -> Generator[Said]:
        """What each response adds. Raises EngineFailedError."""

    def abort(self) -> None:
        """Asks the engine to end the call in flight; harmless when there is none."""

    def check(self) -> None:
        """Raises EngineLostError if the engine's process is gone; may wait for a slow one."""


class Engines(Protocol):
    """All engines that an orchestrator can reach, by their models' names."""

    def calls(
        self,
        model: str,
        request_id: str,
        label: str,
        sampling: Sampling,
        clock: EngineClock | None = None,
    ) -> EngineCalls:
        """Calls for one request, each with the id `<request_id>:<label>:<number>`.

        The clock is advanced by the engine's own times, which are asked for only then.
        """
