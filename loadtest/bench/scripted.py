"""Scripts for the drafter that knows the answer and is right at a set rate.

Acceptance is replayed, never the clock: an answer is asked for once, some of its tokens are made
wrong, and the engines then draft, verify and stream for real.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from scipy.optimize import brentq

from loadtest.bench.prompting import TokenPrompt


def agreement(tokens_per_round: float, num_draft_tokens: int) -> float:
    """How often a single guess must be right, for so many tokens in a round on average.

    Leviathan et al. 2023, equation 1, solved for alpha. Raises ValueError for what k drafts cannot
    reach.
    """
    if not 1.0 < tokens_per_round < num_draft_tokens + 1:
        raise ValueError(
            f"{num_draft_tokens} drafts give 1 to {num_draft_tokens + 1} tokens per round; "
            f"asked for {tokens_per_round:g}"
        )

    def excess(alpha: float) -> float:
        return sum(alpha**n for n in range(num_draft_tokens + 1)) - tokens_per_round

    return float(brentq(excess, 0.0, 1.0))


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
