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
from dataclasses import dataclass
from pathlib import Path

from builder.assembly import WEIGHTS
from builder.parameters import set_parameters
from loadtest.lab.kit.alternating import ask_salted
from loadtest.lab.kit.answers import Measurement, of, rate_of, ratio_of
from loadtest.lab.kit.arms import AUTO, OFF
from loadtest.lab.kit.asking import Draw
from loadtest.lab.kit.options import bench_parser, finish
from loadtest.lab.kit.prompts import as_tokens, held_out_prompts
from loadtest.lab.kit.random_weights import random_draft
from loadtest.lab.kit.ratios import Ratio
from loadtest.lab.kit.repository import with_drafts
from loadtest.lab.kit.results import table_of

FIXED = ("lookup", "lookup+eagle3:1", "lookup+eagle3:2", "lookup+eagle3:3", "lookup+draft:2")
FIXED_RANDOM = ("draft:2",)


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """The speed of one arm of one server."""

    server: str
    arm: str
    tokens_per_s: float
    auto_over_it: Ratio | None
    """The rate of `auto` ÷ this arm's; None for `auto` itself."""


def main(argv: list[str]) -> int:
    """Measure and report; return 0."""
    parser = bench_parser("control", __doc__)
    parser.add_argument("--per-task", type=int, default=3, metavar="N", help="prompts per task")
    parser.add_argument("--learning", type=int, default=60, metavar="N", help="requests at first")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    source, found = arguments.model_repository, dict[str, list[Measurement]]()
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        pair = with_drafts(source, Path(scratch) / "pair")
        random_pair = _with_random_draft(source, Path(scratch) / "random")
        found["default pair"] = _measure(pair, (OFF, AUTO, *FIXED), arguments)
        found["random draft alone"] = _measure(random_pair, (OFF, AUTO, *FIXED_RANDOM), arguments)
    arms = figures(found)
    table = table_of(
        {
            "server": lambda each: each.server,
            "arm": lambda each: each.arm,
            "tokens/s": lambda each: f"{each.tokens_per_s:.1f}",
            "auto ÷ it, 95 % interval": lambda each: str(each.auto_over_it or ""),
        },
        arms,
    )
    return finish(arguments, argv, {"arms": arms}, table, raw=found)


def _with_random_draft(repository: Path, directory: Path) -> Path:
    """Copy the pair without its head, and fill the layers of its draft model at random."""
    copy = with_drafts(repository, directory)
    set_parameters(copy / "specdec", target_head_name="")
    weights = copy / "draft" / WEIGHTS
    source = weights.resolve()
    weights.unlink()
    random_draft(source, weights)
    return copy


def _measure(
    repository: Path, arms: Sequence[str], arguments: argparse.Namespace
) -> list[Measurement]:
    """Ask all arms of one server, after it has learned."""
    checkpoint = repository / "target" / WEIGHTS
    prompts = held_out_prompts(arguments.per_task)
    asked = {each.prompt_id for each in prompts}
    others = [each for each in held_out_prompts(None) if each.prompt_id not in asked]
    unsalted, end_id = as_tokens(others, checkpoint, "learn")
    num_learning = min(arguments.learning, len(unsalted))
    some = random.Random(arguments.seed).sample(unsalted, num_learning)
    salted = {
        arm: as_tokens(prompts, checkpoint, f"{number:02}")[0] for number, arm in enumerate(arms)
    }
    draw = Draw(arguments.max_tokens, seed=arguments.seed)
    return ask_salted(repository, salted, [(prompt, AUTO) for prompt in some], draw, end_id)


def figures(found: dict[str, list[Measurement]]) -> list[ArmFigures]:
    """Return the rate of each arm of each server, and the controller's gain over it."""
    return [
        ArmFigures(
            server,
            arm,
            rate_of(of(own, arm)),
            None if arm == AUTO else ratio_of(own, AUTO, arm),
        )
        for server, own in found.items()
        for arm in dict.fromkeys(each.arm for each in own)
    ]
