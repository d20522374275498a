"""All prompts asked of all arms, so that no arm profits from what another has computed.

In every pass each prompt is asked of one arm only, in random order, and the server is started
anew before the arms change places. After as many passes as there are arms every arm has answered
every prompt.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
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
