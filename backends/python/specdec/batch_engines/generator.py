"""The interface of an engine with a batch loop of its own, as the answers drive it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Protocol

from specdec.errors import SpecdecError
from specdec.token_ids import TopLogProbs
from specdec.torch_engine.task import Task


@dataclass(frozen=True, slots=True)
class Part:
    """New tokens of an answer, without the end token."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()
    """The log-probability of each of `tokens`; empty unless the task wants them."""
    top_log_probs: tuple[TopLogProbs, ...] = ()
    """The most likely tokens at the position of each of `tokens`; empty unless asked for."""
    ended: bool = False
    """Whether the end token follows `tokens`."""
    is_last: bool = False


class Generator(Protocol):
    """The engine; all methods run on its asyncio loop."""

    name: str
    """Name in messages to clients."""

    @property
    def has_failed(self) -> bool:
        """Whether the engine can answer nothing any more."""

    async def ping(self) -> bool:
        """Return True once the engine has ended its current step; False if it cannot tell."""

    def generate(self, task: Task, arguments: Any) -> AsyncGenerator[Part]:
        """Yield the parts of the answer to a task as they come; end after the last one.

        `arguments` come from `BatchEngine._arguments`. Cancelling the
        iteration ends the answer in the engine. Raises EngineFailedError if the engine ends the
        answer before it is complete; the engine's own exceptions pass through.
        """

    def error_of(self, error: Exception) -> SpecdecError | None:
        """Return what a client gets for an exception of the engine; None if it is unexpected."""
