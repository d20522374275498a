"""The interface for calls of an engine, over BLS or within the process.

Its terms are those of NVIDIA's `tensorrtllm` backend (contract.py).
"""

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
    """One call of an engine: generate after a context, or verify a draft after it.

    All that is the same for each call of a request is in `Sampling`.
    """

    context: TokenIds
    """Prompt and confirmed tokens, [n] int32."""
    max_new_tokens: int
    """Most tokens to generate; to verify a draft, its number of tokens and one."""
    end_id: int | None
    """Token at which to end, which is not returned; None to go on to `max_new_tokens`."""
    draft: Draft = NO_DRAFT
    """Draft to verify, and what to ask of the target's head."""
    returns_logits: bool = False
    """Whether to return the logits from which the tokens were drawn."""
    streaming: bool = False
    """Whether to send a response for each step instead of one for all."""


class Said(NamedTuple):
    """The part of a call's result that one response brings."""

    tokens: tuple[int, ...]
    """New tokens, without the end token."""
    log_probs: tuple[float, ...] = ()
    """The model's log-probability of each of `tokens`; empty unless asked for."""
    logits: npt.NDArray[np.float32] | None = None
    """Logits [tokens, vocab] from which `tokens` were drawn; None unless asked for."""
    num_accepted: int | None = None
    """Accepted draft tokens; None if the engine does not report it."""
    num_drafted: int | None = None
    """Draft tokens that were verified; None if the engine does not report it."""
    next_drafts: tuple[int, ...] = ()
    """Draft tokens that the target's head proposes after `tokens`; empty unless asked for."""
    next_parents: tuple[int, ...] = ()
    """Parents of `next_drafts` if they form a tree, as in `Draft.parents`."""


class EngineCalls(Protocol):
    """Runs the calls of one request to one engine, one after another.

    `abort` may be called from another thread. An abort that arrives before its call has no effect,
    so the watchdog repeats it until the request has ended.
    """

    @property
    def can_stream(self) -> bool:
        """Whether a streaming call is safe; over BLS, if each response waits for the reader."""

    def run(self, call: Call) -> Generator[Said]:
        """Run a call and yield what each response adds.

        Raise InvalidRequestError or UnsupportedError if the request is at fault, else
        EngineFailedError.
        """

    def abort(self) -> None:
        """Ask the engine to end the running call; do nothing without one."""

    def check(self) -> None:
        """Raise EngineLostError if the engine's process has died; may wait for a slow engine."""


class Engines(Protocol):
    """All engines that an orchestrator can reach, by the names of their models."""

    def calls(
        self,
        model: str,
        request_id: str,
        label: str,
        sampling: Sampling,
        clock: EngineClock | None = None,
    ) -> EngineCalls:
        """Return the calls of one request to `model`.

        Each call has the id `<request_id>:<label>:<number>`. If there is a `clock`, the engine is
        asked for its own times, and they are added to it.
        """
