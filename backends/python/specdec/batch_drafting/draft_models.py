"""Call draft models for the requests of an engine's batch, once in a step for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from specdec.batch_drafting.requests import BatchRequest
from specdec.drafting.models.engine import DraftHealth
from specdec.drafting.models.postponed import DraftCall
from specdec.drafting.protocol import Proposal
from specdec.errors import InvalidRequestError, UnsupportedError


class DraftModels(Protocol):
    """The draft models of the server."""

    def draft(
        self, model: str, calls: Sequence[DraftCall], timeout_s: float
    ) -> list[tuple[int, ...]]:
        """Return the draft of each call, all of which are to this model; may be empty.

        Raises DraftTimeoutError after `timeout_s` seconds, InvalidRequestError or UnsupportedError
        if the model refuses all calls, and EngineFailedError if it fails.
        """


class PostponedCalls:
    """The calls of draft models that proposals of a step wait for; used by the drafting thread."""

    def __init__(
        self,
        models: DraftModels | None,
        report_failure: Callable[[str, Exception], None],
        clock: Callable[[], float],
    ) -> None:
        """`report_failure` gets a model's name and its error. `clock` returns seconds."""
        self._models = models
        self._report_failure = report_failure
        self._clock = clock
        self._health: dict[str, DraftHealth] = {}
        """Health of each draft model, by name."""

    def proposals(
        self, requests: Mapping[int, BatchRequest], timeout_s: float
    ) -> Iterator[tuple[int, Proposal]]:
        """Call each draft model once, and yield key and proposal of the requests that wait for it.

        If a model fails, its requests have no proposal, and it is not called for a while. If it
        refuses its requests, they do not wait for it again. All calls together take at most
        `timeout_s` seconds.
        """
        deadline_s = self._clock() + timeout_s
        waiting: dict[str, list[tuple[int, DraftCall]]] = {}
        for key, request in requests.items():
            if (call := request.postponed) is not None:
                waiting.setdefault(call.model, []).append((key, call))
        for num_called, (model, calls) in enumerate(waiting.items()):
            # A model that is slow must leave the others their part of the time.
            left_s = (deadline_s - self._clock()) / (len(waiting) - num_called)
            try:
                drafts = self._drafts(model, [call for _, call in calls], left_s)
            except (InvalidRequestError, UnsupportedError):
                for key, _ in calls:
                    requests[key].complete(None)
                continue
            for (key, call), tokens in zip(calls, drafts, strict=False):
                yield key, requests[key].complete(tokens[: call.num_tokens])

    def _drafts(
        self, model: str, calls: Sequence[DraftCall], timeout_s: float
    ) -> list[tuple[int, ...]]:
        """Return the draft of each call; none at all if the model fails or is left alone.

        Raises InvalidRequestError or UnsupportedError if the model refuses all calls.
        """
        health = self._health.setdefault(model, DraftHealth(self._clock))
        if self._models is None or timeout_s <= 0 or (begun_s := health.begin()) is None:
            return []
        try:
            drafts = self._models.draft(model, calls, timeout_s)
        except (InvalidRequestError, UnsupportedError) as error:
            health.ended(begun_s)
            self._report_failure(model, error)
            raise
        except Exception as error:  # noqa: BLE001 - a failing draft model never fails a step
            health.failed(begun_s)
            self._report_failure(model, error)
            return []
        health.succeeded(begun_s)
        return drafts
