"""The interface for calls to an engine, over BLS or within the process.

Its terms are those of NVIDIA's `tensorrtllm` backend (contract.py).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from specdec.engines.protocol import NO_DRAFT, Draft, EngineClock
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.round_records import DraftingReport
from specdec.token_ids import TokenIds, TopLogProbs


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of an engine: generate after a context, or verify a draft after it.

    `Sampling` holds the parameters that all calls of a request have in common.
    """

    context: TokenIds
    """Prompt and confirmed tokens, [n] int32."""
    max_new_tokens: int
    """Most tokens to generate; with a draft, its number of tokens plus 1."""
    end_id: int | None
    """End token, at which generation ends and which is not returned; None for no such token."""
    draft: Draft = NO_DRAFT
    """Draft to verify, and the request for the head's next draft."""
    returns_logits: bool = False
    """Whether to return the logits from which the tokens were drawn."""
    streaming: bool = False
    """Whether to send a response for each step instead of one for all."""
    drafting: str = ""
    """The request's drafting options as JSON (batch_drafting/options.py), for a target with our
    drafters inside; empty for all others."""


class CallOutput(NamedTuple):
    """The part of a call's result that one response brings."""

    tokens: tuple[int, ...]
    """New tokens, without the end token."""
    log_probs: tuple[float, ...] = ()
    """The model's log-probability of each of `tokens`; empty unless asked for."""
    logits: npt.NDArray[np.float32] | None = None
    """Logits [tokens, vocab] from which `tokens` were drawn; None unless asked for."""
    num_accepted: int | None = None
    """Number of accepted draft tokens; None if the engine does not report it."""
    num_draft_tokens: int | None = None
    """Number of draft tokens that were verified; None if the engine does not report it."""
    next_drafts: tuple[int, ...] = ()
    """Draft tokens that the target's head proposes after `tokens`; empty unless asked for."""
    next_parents: tuple[int, ...] = ()
    """Parents of `next_drafts` if they form a tree, as in `Draft.parents`."""
    drafting: DraftingReport | None = None
    """The rounds of `tokens`, from a target with our drafters inside."""
    top_log_probs: tuple[TopLogProbs, ...] = ()
    """The most likely tokens at the position of each of `tokens`; empty unless asked for."""


class EngineCalls(Protocol):
    """The interface for the calls of one request to one engine, made one after another.

    `abort` may be called from another thread. An abort that arrives before its call has no effect,
    so the watchdog repeats it until the request has ended.
    """

    @property
    def can_stream(self) -> bool:
        """Whether streaming is safe; over BLS, only if each response waits for the reader."""

    def run(self, call: Call) -> Generator[CallOutput]:
        """Run a call and yield the part of its result that each response brings.

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

        Each call has the id `<request_id>:<label>:<number>`. With a `clock`, calls ask for the
        engine's own times and add them to it.
        """
