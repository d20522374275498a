"""Asks all prompts in all arms, so that no arm profits from what another has computed.

Without salts, each pass asks each prompt in one arm only, in random order, on a new server. The
arms then change, so that after as many passes as arms each arm has answered each prompt. With salts
one server answers everything, and each arm has the prompts with another salt.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from specdec.launch.launcher import TritonServer
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arm_client import ArmClient
from specdec.loadtest.kit.asking import Draw
from specdec.loadtest.kit.options import progress
from specdec.loadtest.kit.prompts import WARM_UP, TokenPrompt

NUM_WARM_UPS = 2


def ask_in_alternation(
    repository: Path, prompts: Sequence[TokenPrompt], arms: Sequence[str], draw: Draw, end_id: int
) -> list[Measurement]:
    """Return one answer of each arm to each prompt, from one server for each pass."""
    found: list[Measurement] = []
    for number in range(len(arms)):
        order = random.Random(draw.seed + number)
        plan = [(prompt, arms[(i + number) % len(arms)]) for i, prompt in enumerate(prompts)]
        with TritonServer(repository) as server, closing(ArmClient(server, draw, end_id)) as client:
            for _ in range(NUM_WARM_UPS):
                for arm in arms:
                    client.ask(WARM_UP, arm)
            for count, (prompt, arm) in enumerate(order.sample(plan, len(plan)), start=1):
                found.append(client.ask(prompt, arm))
                progress(f"pass {number + 1}/{len(arms)}: {count}/{len(plan)}")
    print(file=sys.stderr)
    return found


def ask_salted(
    repository: Path,
    salted: Callable[[str], Sequence[TokenPrompt]],
    arms: Sequence[str],
    learning: Sequence[tuple[TokenPrompt, str]],
    draw: Draw,
    end_id: int,
) -> list[Measurement]:
    """Return one answer of each arm to each of its prompts, all from one server.

    `salted` returns the prompts with a salt. `learning` are prompts with the arms in which they are
    asked first; their answers are not measured.
    """
    prompts = {arm: salted(f"{number:02}") for number, arm in enumerate(arms)}
    order = random.Random(draw.seed)
    found: list[Measurement] = []
    num_prompts = min(map(len, prompts.values()))
    with TritonServer(repository) as server, closing(ArmClient(server, draw, end_id)) as client:
        for prompt, arm in learning:
            client.ask(prompt, arm)
        for count, number in enumerate(order.sample(range(num_prompts), num_prompts), start=1):
            in_turn = order.sample(list(arms), len(arms))
            found += [client.ask(prompts[arm][number], arm) for arm in in_turn]
            progress(f"{count}/{num_prompts}")
    print(file=sys.stderr)
    return found
