"""All prompts asked of all arms, so that no arm profits from what another has computed.

Either each prompt is asked of one arm only in a pass, in random order, and the server is started
anew before the arms change places: after as many passes as there are arms every arm has answered
every prompt. Or one server answers all, and each arm has the prompts with another salt.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from loadtest.bench.asking import Asker
from loadtest.bench.prompting import TokenPrompt
from loadtest.bench.speed_tables import Measurement
from specdec.serving.launcher import TritonServer

NUM_WARM_UPS = 2
WARM_UP = TokenPrompt("warm-up", "", tuple(range(1000, 1040)))
"""Text that no prompt contains."""


def ask_in_alternation(
    repository: Path,
    prompts: Sequence[TokenPrompt],
    arms: Sequence[str],
    arguments: argparse.Namespace,
    end_id: int,
) -> list[Measurement]:
    """One answer of each arm to each prompt; `arguments` are an `Asker`'s."""
    found: list[Measurement] = []
    for number in range(len(arms)):
        order = random.Random(arguments.seed + number)
        plan = [(prompt, arms[(i + number) % len(arms)]) for i, prompt in enumerate(prompts)]
        with TritonServer(repository) as server, closing(Asker(server, arguments, end_id)) as asker:
            for _ in range(NUM_WARM_UPS):
                for arm in arms:
                    asker.ask(WARM_UP, arm)
            for place, (prompt, arm) in enumerate(order.sample(plan, len(plan)), 1):
                found.append(asker.ask(prompt, arm))
                text = f"\rpass {number + 1}/{len(arms)}: {place}/{len(plan)}"
                print(text, end="", file=sys.stderr)
    print(file=sys.stderr)
    return found


def ask_salted(
    repository: Path,
    salted: Mapping[str, Sequence[TokenPrompt]],
    learning: Sequence[tuple[TokenPrompt, str]],
    arguments: argparse.Namespace,
    end_id: int,
) -> list[Measurement]:
    """The same of one server: `salted` has each arm's prompts in the same order.

    `learning`: prompts and arms that are asked before and not counted.
    """
    order = random.Random(arguments.seed)
    found: list[Measurement] = []
    num_prompts = min(map(len, salted.values()))
    with TritonServer(repository) as server, closing(Asker(server, arguments, end_id)) as asker:
        for prompt, arm in learning:
            asker.ask(prompt, arm)
        for count, place in enumerate(order.sample(range(num_prompts), num_prompts), start=1):
            in_turn = order.sample(list(salted), len(salted))
            found += [asker.ask(salted[arm][place], arm) for arm in in_turn]
            print(f"\r{count}/{num_prompts}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return found
