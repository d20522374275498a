"""Scripts for the drafter that knows the answer and is right at a set rate.

Acceptance is replayed, never the clock: an answer is asked for once, some of its tokens are made
wrong, and the engines then draft, verify and stream for real.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from loadtest.bench.prompting import TokenPrompt


def write_scripts(
    file: Path,
    prompts: Sequence[TokenPrompt],
    answers: Mapping[str, Sequence[int]],
    alpha: float,
    vocab_size: int,
) -> None:
    """Writes each answer with every token, independently, left right with probability `alpha`."""
    order = random.Random(0)
    with file.open("w", encoding="utf-8") as lines:
        for prompt in prompts:
            guesses = [
                token if order.random() < alpha else (token + order.randrange(1, 1000)) % vocab_size
                for token in answers[prompt.prompt_id]
            ]
            entry = {"prompt": list(prompt.token_ids), "guesses": guesses}
            lines.write(json.dumps(entry) + "\n")
