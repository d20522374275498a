"""Many requests at once from one thread: gRPC streams on asyncio, with the outcome of each."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2_grpc

from specdec.clients.errors import SpecdecError
from specdec.clients.grpc_messages import encode_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specdec.clients.request import GenerationRequest

STREAMS_PER_CHANNEL = 64
"""Streams per connection: HTTP/2 servers allow about 100."""

ANSWER_LIMIT_S = 300.0
"""Seconds after which a stream counts as hung, with the outcome TIMED_OUT.

Streams beside a prompt of 4,000 tokens last longest: about a minute on two cores, and 220 s if
these are busy.
"""

WHOLE = "whole"
"""The outcome of an answer that came to its end."""
TIMED_OUT = grpc.StatusCode.DEADLINE_EXCEEDED.name
"""The outcome of an answer that took longer than ANSWER_LIMIT_S."""


@dataclass(slots=True)
class Answer:
    """One request's answer; times are time.monotonic(), and 0 if there is none.

    `first_s` and `token_times_s` are set for gRPC streams only.
    """

    token_ids: list[int] = field(default_factory=list)
    is_complete: bool = False
    error_type: str = ""
    """The server's `error_type`; a gRPC code or http_answers.CLOSED if the connection broke."""
    detail: str = ""
    start_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    """Time of the last response or of the error."""
    token_times_s: list[float] = field(default_factory=list)
    """Time of each response that carries tokens."""

    @property
    def outcome(self) -> str:
        """WHOLE, the error's type, or `ended without reason` if the answer has neither."""
        return WHOLE if self.is_complete else self.error_type or "ended without reason"

    def gaps_s(self, start_s: float, end_s: float) -> list[float]:
        """Return the seconds between responses, for the gaps that overlap [start_s, end_s]."""
        times_s = self.token_times_s
        return [
            late - early
            for early, late in itertools.pairwise(times_s)
            if late >= start_s and early <= end_s
        ]


class Channels:
    """Connections to one server, enough for `num_streams` streams at once."""

    def __init__(self, url: str, num_streams: int, model: str = "specdec") -> None:
        count = -(-num_streams // STREAMS_PER_CHANNEL)
        self._model = model
        # Without this option, channels to one address share a connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [grpc.aio.insecure_channel(url, options=options) for _ in range(count)]
        self._stubs = [service_pb2_grpc.GRPCInferenceServiceStub(c) for c in self._channels]

    async def __aenter__(self) -> Channels:  # noqa: PYI034 (Self is newer than 3.10)
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close(None)

    def call(self, number: int, request: GenerationRequest) -> Any:
        """Begin a stream on the connection that stream `number` belongs to.

        gRPC ends it after ANSWER_LIMIT_S.
        """
        message = encode_request(request, self._model, stream=True)
        stub = self._stubs[number % len(self._stubs)]
        return stub.ModelStreamInfer(iter([message]), timeout=ANSWER_LIMIT_S)

    async def ask(
        self,
        number: int,
        request: GenerationRequest,
        started: asyncio.Event | None = None,
        answer: Answer | None = None,
    ) -> Answer:
        """Send one request and read its answer to the end.

        `started` is set at the first token, at an error, and at the latest at the end. `answer` is
        filled as the responses come, for a caller that may cancel. A failed request becomes an
        outcome and raises nothing.
        """
        answer = answer or Answer()
        answer.start_s = time.monotonic()
        call = self.call(number, request)
        try:
            async for response in call:
                _record(answer, response)
                if started is not None and (answer.token_ids or answer.error_type):
                    started.set()
        except grpc.aio.AioRpcError as error:
            answer.error_type = answer.error_type or error.code().name
            answer.detail = answer.detail or str(error.details())
            answer.last_s = time.monotonic()
        finally:
            call.cancel()
            if started is not None:
                started.set()
        return answer

    async def ask_all(self, requests: Sequence[GenerationRequest]) -> list[Answer]:
        """Send all requests at once and wait for all answers."""
        return await asyncio.gather(*(self.ask(n, each) for n, each in enumerate(requests)))


def _record(answer: Answer, response: Any) -> None:
    now_s = time.monotonic()
    if response.error_message:
        answer.error_type = error_type_of(response.error_message)
        answer.detail = response.error_message
    else:
        tokens, is_last = tokens_of(response.infer_response)
        answer.token_ids += tokens
        answer.is_complete |= is_last
        if tokens and not answer.first_s:
            answer.first_s = now_s
        if tokens:
            answer.token_times_s.append(now_s)
    answer.last_s = now_s


def error_type_of(message: str) -> str:
    """Return the type that the server names at the start of an error's text, else `unnamed`."""
    return SpecdecError.from_server(message).error_type or "unnamed"


def tokens_of(response: Any) -> tuple[list[int], bool]:
    """Return the tokens of one response, and whether it carries the finish reason."""
    names = [spec.name for spec in response.outputs]
    if "output_ids" not in names:
        return [], False
    raw = response.raw_output_contents[names.index("output_ids")]
    return np.frombuffer(raw, dtype=np.int32).tolist(), "finish_reason" in names
