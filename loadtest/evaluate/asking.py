"""Ask every prompt in every arm on one server, so that no arm gains from another.

An arm is speculation off, or a drafter with its k. Each prompt is first sent for a single token.
That request is not measured; its answer tells the prompt's length. The arms then take turns over
the prompts, in random order. Each arm has a tenant of its own, so that the `suffix` drafter learns
from its arm only.

Engines keep the prefix cache apart by tenant, so the first reading fills it for the arm `off` only.
Gains count the time after the first response, not the time to read a prompt.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

from specdec.clients import GenerationRequest, GrpcClient
from specdec.loadtest.evaluate.domains import DomainPrompt
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import OFF, Arm
from specdec.loadtest.kit.asking import RequestSettings, measure


def ask_all(
    client: GrpcClient,
    prompts: Sequence[DomainPrompt],
    arms: Sequence[str],
    settings: RequestSettings,
) -> tuple[list[Measurement], dict[str, int]]:
    """Return one answer of each arm to each prompt, and the prompts' tokens by prompt id.

    Each arm answers the first prompt once before, unmeasured. Raises SpecdecError if a request
    fails.
    """
    lengths = {prompt.prompt_id: _read(client, prompt, settings) for prompt in prompts}
    for arm in arms:
        _ask(client, prompts[0], arm, settings)
    found = []
    for number in range(len(arms)):
        order = random.Random(settings.seed + number)
        plan = [(prompt, arms[(i + number) % len(arms)]) for i, prompt in enumerate(prompts)]
        for prompt, arm in order.sample(plan, len(plan)):
            found.append(_ask(client, prompt, arm, settings))
            text = f"\r{len(found)} of {len(prompts) * len(arms)} answers"
            print(text, end="", file=sys.stderr)
    print(file=sys.stderr)
    return found, lengths


def _read(client: GrpcClient, prompt: DomainPrompt, settings: RequestSettings) -> int:
    answer = client.generate(_request(prompt, OFF, settings, max_tokens=1))
    return answer.end.num_input_tokens or 0


def _ask(
    client: GrpcClient, prompt: DomainPrompt, arm: str, settings: RequestSettings
) -> Measurement:
    request = _request(prompt, arm, settings, max_tokens=settings.max_tokens)
    return measure(client, request, (prompt.prompt_id, prompt.domain, arm))


def _request(
    prompt: DomainPrompt, arm: str, settings: RequestSettings, max_tokens: int
) -> GenerationRequest:
    return GenerationRequest(
        messages=list(prompt.messages),
        max_tokens=max_tokens,
        task=prompt.domain[:64],
        tenant=f"evaluate {arm}",
        return_perf_metrics=True,
        **settings.case.fields(settings.seed),
        **Arm.parse(arm).fields(),
    )
