"""One prompt asked in one way: of an orchestrator, or of the target without one."""

from __future__ import annotations

import argparse
import time

from clients import Final, GenerationRequest, GrpcClient
from loadtest.bench.arms import Arm, Case
from loadtest.bench.direct import DirectAnswer, DirectTarget
from loadtest.bench.prompting import TokenPrompt
from loadtest.bench.speed_tables import Measurement
from specdec.acceptance.sampling import SamplingParams
from specdec.engines.sampling_inputs import Sampling
from specdec.serving.launcher import TritonServer

DIRECT = "direct"
"""The arm that calls the target itself."""


def measure(
    client: GrpcClient, request: GenerationRequest, where: tuple[str, str, str]
) -> Measurement:
    """Stream one answer; `where`: its prompt's id and column, the arm. Raises SpecdecError."""
    start_s = time.perf_counter()
    first_s = last_s = 0.0
    num_tokens = num_first = 0
    final: Final | None = None
    for chunk in client.stream(request):
        last_s = time.perf_counter() - start_s
        if chunk.token_ids and not num_first:
            first_s, num_first = last_s, len(chunk.token_ids)
        num_tokens += len(chunk.token_ids)
        final = chunk.final or final
    known = dict(final.speculative_decoding or {}) if final else {}
    return Measurement(*where, num_tokens, num_first, first_s, last_s, known or None)


class Asker:
    """Asks one prompt of one arm."""

    def __init__(self, server: TritonServer, arguments: argparse.Namespace, end_id: int) -> None:
        """`arguments`: max_tokens, case, seed, times."""
        self._grpc_url = server.grpc_url
        self._clients: dict[str, GrpcClient] = {}
        self._target = DirectTarget(server.grpc_url)
        self._max_tokens: int = arguments.max_tokens
        self._case = Case.parse(arguments.case)
        self._seed: int = arguments.seed
        self._measure_times: bool = arguments.times
        self._end_id = end_id

    def close(self) -> None:
        self._target.close()
        for client in self._clients.values():
            client.close()

    def ask(self, prompt: TokenPrompt, arm: str) -> Measurement:
        if arm == DIRECT:
            answer = self.ask_directly(prompt)
            count, first_s, last_s = len(answer.tokens), answer.first_s, answer.last_s
            where = prompt.prompt_id, prompt.column, arm
            return Measurement(*where, count, 1, first_s, last_s, None)
        return self._stream(prompt, arm)

    def ask_directly(self, prompt: TokenPrompt) -> DirectAnswer:
        ids, case = list(prompt.token_ids), self._case
        params = SamplingParams(case.temperature, top_p=case.top_p, seed=self._seed)
        sampling = Sampling(params, len(ids), has_shared_sampler=True)
        return self._target.generate(ids, self._max_tokens, self._end_id, sampling)

    def _stream(self, prompt: TokenPrompt, arm: str) -> Measurement:
        way = Arm.parse(arm)
        request = GenerationRequest(
            input_ids=list(prompt.token_ids),
            max_tokens=self._max_tokens,
            return_perf_metrics=self._measure_times or None,
            **self._case.fields(self._seed),
            **way.fields(),
        )
        where = prompt.prompt_id, prompt.column, arm
        return measure(self._client(way.model), request, where)

    def _client(self, model: str) -> GrpcClient:
        if model not in self._clients:
            self._clients[model] = GrpcClient(self._grpc_url, model_name=model)
        return self._clients[model]
