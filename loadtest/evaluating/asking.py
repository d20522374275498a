"""Every prompt asked in every way, on one server, so that no way profits from another.

Each prompt is first read without being measured, so that all ways find the target's cache filled:
what is compared is the answer, not the reading of the prompt. Then the ways take turns over the
prompts, in random order, and each has a tenant of its own.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from clients import GenerationRequest, GrpcClient
from loadtest.bench.arms import OFF, Arm, Case
from loadtest.bench.asking import measure
from loadtest.bench.speed_tables import Measurement
from loadtest.evaluating.domains import DomainPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How everything is asked."""

    max_tokens: int
    case: Case
    seed: int


def ask_all(
    client: GrpcClient, prompts: Sequence[DomainPrompt], arms: Sequence[str], way: Way
) -> tuple[list[Measurement], dict[str, int]]:
    """One answer of each arm to each prompt, and the prompts' tokens. Raises SpecdecError."""
    lengths = {prompt.prompt_id: _read(client, prompt, way) for prompt in prompts}
    for arm in arms:
        _ask(client, prompts[0], arm, way)
    found = []
    for number in range(len(arms)):
        order = random.Random(way.seed + number)
        plan = [(prompt, arms[(i + number) % len(arms)]) for i, prompt in enumerate(prompts)]
        for prompt, arm in order.sample(plan, len(plan)):
            found.append(_ask(client, prompt, arm, way))
            text = f"\r{len(found)} of {len(prompts) * len(arms)} answers"
            print(text, end="", file=sys.stderr)
    print(file=sys.stderr)
    return found, lengths


def _read(client: GrpcClient, prompt: DomainPrompt, way: Way) -> int:
    answer = client.generate(_request(prompt, OFF, way, max_tokens=1))
    return answer.final.num_input_tokens or 0


def _ask(client: GrpcClient, prompt: DomainPrompt, arm: str, way: Way) -> Measurement:
    request = _request(prompt, arm, way, max_tokens=way.max_tokens)
    return measure(client, request, (prompt.prompt_id, prompt.domain, arm))


def _request(prompt: DomainPrompt, arm: str, way: Way, max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        messages=list(prompt.messages),
        max_tokens=max_tokens,
        task=prompt.domain[:64],
        tenant=f"evaluate {arm}",
        return_perf_metrics=True,
        **way.case.fields(way.seed),
        **Arm.parse(arm).fields(),
    )
