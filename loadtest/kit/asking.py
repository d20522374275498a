"""Asks an orchestrator, or the target without one, and measures the answer."""

from __future__ import annotations

import time
from dataclasses import dataclass

from specdec.clients import AnswerEnd, GenerationRequest, GrpcClient
from specdec.launch.launcher import TritonServer
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import DIRECT, GREEDY, Arm, Case
from specdec.loadtest.kit.direct import DirectTarget
from specdec.loadtest.kit.prompts import TokenPrompt


@dataclass(frozen=True, slots=True)
class Draw:
    """The settings that all requests of a bench share."""

    max_tokens: int
    case: Case = GREEDY
    seed: int = 1
    has_statistics: bool = False
    """True to request the statistics of speculation with each answer."""


def measure(
    client: GrpcClient, request: GenerationRequest, about: tuple[str, str, str]
) -> Measurement:
    """Stream one answer and measure it. Raises SpecdecError if the request fails.

    `about` has the prompt's id, its column and the arm.
    """
    start_s = time.perf_counter()
    first_s = last_s = 0.0
    num_tokens = num_first = 0
    final: AnswerEnd | None = None
    for chunk in client.stream(request):
        last_s = time.perf_counter() - start_s
        if chunk.token_ids and not num_first:
            first_s, num_first = last_s, len(chunk.token_ids)
        num_tokens += len(chunk.token_ids)
        final = chunk.end or final
    statistics = dict(final.speculative_decoding or {}) if final else {}
    return Measurement(*about, num_tokens, num_first, first_s, last_s, statistics or None)


class Asker:
    """Asks one prompt in one arm at a time."""

    def __init__(self, server: TritonServer, draw: Draw, end_id: int) -> None:
        self._grpc_url = server.grpc_url
        self._clients: dict[str, GrpcClient] = {}
        self._target = DirectTarget(server.grpc_url)
        self._draw = draw
        self._end_id = end_id

    def close(self) -> None:
        """Close all connections."""
        self._target.close()
        for client in self._clients.values():
            client.close()

    def ask(self, prompt: TokenPrompt, arm: str) -> Measurement:
        """Return the measured answer of an arm. Raises SpecdecError if the request fails."""
        about, draw = (prompt.prompt_id, prompt.column, arm), self._draw
        if arm == DIRECT:
            answer = self._target.generate(
                prompt.token_ids, draw.max_tokens, self._end_id, draw.case, draw.seed
            )
            return Measurement(
                *about, len(answer.tokens), 1, answer.first_s, answer.last_s, statistics=None
            )
        parsed = Arm.parse(arm)
        request = GenerationRequest(
            input_ids=list(prompt.token_ids),
            max_tokens=draw.max_tokens,
            return_perf_metrics=draw.has_statistics or None,
            **draw.case.fields(draw.seed),
            **parsed.fields(),
        )
        return measure(self._client(parsed.model), request, about)

    def _client(self, model: str) -> GrpcClient:
        if model not in self._clients:
            self._clients[model] = GrpcClient(self._grpc_url, model_name=model)
        return self._clients[model]
