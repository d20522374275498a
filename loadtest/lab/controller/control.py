"""`specdec bench control`: the controller on a live server, against fixed choices.

Two servers run one after the other: the default pair, and one whose only drafter is a draft model
with random weights. Each prompt is asked in every arm, each time with another salt, so that no
cached prefix helps. The controller first learns from other prompts of the same tasks.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specdec.builder.config_file import set_parameters
from specdec.loadtest.kit.alternating import ask_salted
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import AUTO, OFF
from specdec.loadtest.kit.asking import RequestSettings
from specdec.loadtest.kit.options import add_max_tokens, bench_parser, finish
from specdec.loadtest.kit.prompts import checkpoint_of, held_out_prompts
from specdec.loadtest.kit.random_weights import random_draft
from specdec.loadtest.kit.repository import with_drafts
from specdec.loadtest.kit.speed_tables import gains, gains_table, rates, rates_table

FIXED = ("lookup", "lookup+eagle3:1", "lookup+eagle3:2", "lookup+eagle3:3", "lookup+draft:2")
FIXED_RANDOM = ("draft:2",)


def main(argv: list[str]) -> int:
    """Measure and report; return 0."""
    parser = bench_parser("control", __doc__)
    parser.add_argument("--per-task", type=int, default=3, metavar="N", help="prompts per task")
    parser.add_argument("--learning", type=int, default=60, metavar="N", help="requests at first")
    add_max_tokens(parser, 64)
    parser.add_argument("--seed", type=int, default=1, help="of the order of requests")
    arguments = parser.parse_args(argv)
    source, found = arguments.model_repository, dict[str, list[Measurement]]()
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        pair = with_drafts(source, Path(scratch) / "pair")
        random_pair = _with_random_draft(source, Path(scratch) / "random")
        found["default pair"] = _measure(pair, (OFF, AUTO, *FIXED), arguments)
        found["random draft alone"] = _measure(random_pair, (OFF, AUTO, *FIXED_RANDOM), arguments)
    results = {server: figures(own) for server, own in found.items()}
    table = "\n\n".join(
        f"{server}:\n\n{rates_table(own['rates'])}\n\n{gains_table(own['gains'])}"
        for server, own in results.items()
    )
    return finish(arguments, argv, results, table, raw=found)


def figures(found: list[Measurement]) -> dict[str, list[Any]]:
    """Return the rate of each arm of one server, and the controller's gain over the others."""
    arms = list(dict.fromkeys(each.arm for each in found))
    others = [arm for arm in arms if arm != AUTO]
    return {"rates": rates(found, arms), "gains": gains(found, [AUTO], others)}


def _with_random_draft(repository: Path, directory: Path) -> Path:
    """Copy the pair without its head, and fill the layers of its draft model at random."""
    copy = with_drafts(repository, directory)
    set_parameters(copy / "specdec", target_head_name="")
    weights = checkpoint_of(copy, "draft")
    source = weights.resolve()
    weights.unlink()
    random_draft(source, weights)
    return copy


def _measure(
    repository: Path, arms: Sequence[str], arguments: argparse.Namespace
) -> list[Measurement]:
    """Ask all arms of one server, after it has learned."""
    prompts = held_out_prompts(arguments.per_task)
    others = [each for each in held_out_prompts(None) if each not in prompts]
    num_learning = min(arguments.learning, len(others))
    some = random.Random(arguments.seed).sample(others, num_learning)
    settings = RequestSettings(arguments.max_tokens, seed=arguments.seed)
    return ask_salted(repository, prompts, arms, [(each, AUTO) for each in some], settings)
