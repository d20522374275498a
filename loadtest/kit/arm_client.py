"""Asks an orchestrator, or the target without one, and measures the answer."""

from __future__ import annotations

from specdec.clients import GenerationRequest, GrpcClient
from specdec.launch.launcher import TritonServer
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import DIRECT, Arm
from specdec.loadtest.kit.asking import Draw, measure
from specdec.loadtest.kit.direct import DirectTarget
from specdec.loadtest.kit.prompts import TokenPrompt


class ArmClient:
    """Connections to one server, to ask one prompt in one arm at a time."""

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
