"""Asks all prompts in all arms, so that no arm profits from what another has computed.

Without salts, each pass asks each prompt in one arm only, in random order, on a new server. The
arms then change, so that after as many passes as arms each arm has answered each prompt. With salts
one server answers everything, and each arm has the prompts with another salt.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from specdec.clients import GenerationRequest, GrpcClient
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import DIRECT, Arm
from specdec.loadtest.kit.asking import RequestSettings, measure
from specdec.loadtest.kit.direct import DirectTarget
from specdec.loadtest.kit.options import progress
from specdec.loadtest.kit.prompts import WARM_UP, TokenPrompt, as_tokens
from specdec.loadtest.load.prompts import Prompt

NUM_WARM_UPS = 2


class ArmClient:
    """Connections to one server, to ask one prompt in one arm at a time."""

    def __init__(self, server: TritonServer, settings: RequestSettings) -> None:
        self._grpc_url = server.grpc_url
        self._clients: dict[str, GrpcClient] = {}
        self._target = DirectTarget(server.grpc_url)
        self._settings = settings

    def close(self) -> None:
        """Close all connections."""
        self._target.close()
        for client in self._clients.values():
            client.close()

    def ask(self, prompt: TokenPrompt, arm: str) -> Measurement:
        """Return the measured answer of an arm. Raises SpecdecError if the request fails."""
        about, settings = (prompt.prompt_id, prompt.column, arm), self._settings
        if arm == DIRECT:
            answer = self._target.generate(prompt, settings)
            return Measurement(*about, len(answer.tokens), 1, answer.first_s, answer.last_s, None)
        parsed = Arm.parse(arm)
        request = GenerationRequest(
            input_ids=list(prompt.token_ids),
            max_tokens=settings.max_tokens,
            return_perf_metrics=settings.has_statistics or None,
            **settings.case.fields(settings.seed),
            **parsed.fields(),
        )
        return measure(self._client(parsed.model), request, about)

    def _client(self, model: str) -> GrpcClient:
        if model not in self._clients:
            self._clients[model] = GrpcClient(self._grpc_url, model_name=model)
        return self._clients[model]


def ask_in_alternation(
    repository: Path, prompts: Sequence[TokenPrompt], arms: Sequence[str], settings: RequestSettings
) -> list[Measurement]:
    """Return one answer of each arm to each prompt, from one server for each pass."""
    found: list[Measurement] = []
    warm_up = [(WARM_UP, arm) for arm in arms] * NUM_WARM_UPS
    for number in range(len(arms)):
        order = random.Random(settings.seed + number)
        plan = [(prompt, arms[(i + number) % len(arms)]) for i, prompt in enumerate(prompts)]
        in_turn = order.sample(plan, len(plan))
        title = f"pass {number + 1}/{len(arms)}: "
        found += _ask_server(repository, warm_up, in_turn, settings, title)
    return found


def ask_salted(
    repository: Path,
    prompts: Sequence[Prompt],
    arms: Sequence[str],
    learning: Sequence[tuple[Prompt, str]],
    settings: RequestSettings,
) -> list[Measurement]:
    """Return one answer of each arm to each prompt, all from one server.

    The server first answers the prompts of `learning`, each in its arm, which are not measured.
    """
    salted = [as_tokens(prompts, repository, f"{n:02}") for n in range(len(arms))]
    first = as_tokens([prompt for prompt, _ in learning], repository, "learn")
    order = random.Random(settings.seed)
    plan: list[tuple[TokenPrompt, str]] = []
    for number in order.sample(range(len(prompts)), len(prompts)):
        in_turn = order.sample(list(enumerate(arms)), len(arms))
        plan += [(salted[n][number], arm) for n, arm in in_turn]
    unmeasured = list(zip(first, (arm for _, arm in learning), strict=True))
    return _ask_server(repository, unmeasured, plan, settings)


def _ask_server(
    repository: Path,
    unmeasured: Sequence[tuple[TokenPrompt, str]],
    plan: Sequence[tuple[TokenPrompt, str]],
    settings: RequestSettings,
    title: str = "",
) -> list[Measurement]:
    """Return the answers to `plan` from a new server, which has answered `unmeasured` before."""
    found = []
    with TritonServer(repository) as server, closing(ArmClient(server, settings)) as client:
        for prompt, arm in unmeasured:
            client.ask(prompt, arm)
        for count, (prompt, arm) in enumerate(plan, start=1):
            found.append(client.ask(prompt, arm))
            progress(f"{title}{count}/{len(plan)}")
    print(file=sys.stderr)
    return found
