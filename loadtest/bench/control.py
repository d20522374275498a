"""`specdec bench control`: the controller at a live server, against what could have been fixed.

Two servers, one after the other: the default pair, and one whose only drafter is a draft engine
with random weights. Every prompt is asked of every arm in turn, each time with a salt at its head,
so that no arm profits from what another has computed. The controller gets some requests beforehand
to learn from, with other prompts of the same tasks, and those are not counted.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.parameters import set_parameters
from builder.repository.weights import WEIGHTS
from loadtest.bench.alternating import ask_salted
from loadtest.bench.arms import OFF
from loadtest.bench.hopeless import random_draft
from loadtest.bench.prompting import as_tokens, held_out_prompts
from loadtest.bench.ratios import Ratio
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.bench.repository import with_drafts
from loadtest.bench.speed_tables import Measurement, of, rate_of, ratio_of

AUTO = "auto"
FIXED = ("lookup", "lookup+eagle3:1", "lookup+eagle3:2", "lookup+eagle3:3", "lookup+draft:2")
HOPELESS_FIXED = ("draft:2",)


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """The speed of one arm of one server."""

    server: str
    arm: str
    tokens_per_s: float
    auto_over_it: Ratio | None
    """None for `auto` itself."""


def main(argv: list[str]) -> int:
    """Measure and report; 0 always."""
    arguments = _parser().parse_args(argv)
    arguments.case, arguments.times = "0", False
    found: dict[str, list[Measurement]] = {}
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        fair = with_drafts(arguments.model_repository, Path(scratch) / "fair", [])
        hopeless = _hopeless(arguments.model_repository, Path(scratch) / "hopeless")
        found["default pair"] = _measure(fair, (OFF, AUTO, *FIXED), arguments)
        found["random draft alone"] = _measure(hopeless, (OFF, AUTO, *HOPELESS_FIXED), arguments)
    arms = figures(found)
    facts = {"conditions": conditions(command_line("control", argv)), "arms": arms}
    write_result(arguments.name, arguments.out, facts, _table(arms), raw=found)
    return 0


def _hopeless(repository: Path, directory: Path) -> Path:
    """The pair without its head, its draft's layers filled at random."""
    copy = with_drafts(repository, directory, [])
    set_parameters(copy / "specdec", target_head_name="")
    weights = copy / "draft" / WEIGHTS
    source = weights.resolve()
    weights.unlink()
    random_draft(source, weights)
    return copy


def _measure(
    repository: Path, arms: Sequence[str], arguments: argparse.Namespace
) -> list[Measurement]:
    """All prompts asked of all arms, in an order drawn by chance for each prompt."""
    checkpoint = repository / "target" / WEIGHTS
    prompts = held_out_prompts(arguments.per_task)
    asked = {each.prompt_id for each in prompts}
    others = [each for each in held_out_prompts(None) if each.prompt_id not in asked]
    if len(others) < arguments.learning:
        print(f"only {len(others)} other prompts to learn from", file=sys.stderr)
    unsalted, end_id = as_tokens(others, checkpoint, "learn")
    some = random.Random(arguments.seed).sample(unsalted, min(arguments.learning, len(unsalted)))
    salted = {
        arm: as_tokens(prompts, checkpoint, f"{number:02}")[0] for number, arm in enumerate(arms)
    }
    learning = [(prompt, AUTO) for prompt in some]
    return ask_salted(repository, salted, learning, arguments, end_id)


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


def _table(arms: Sequence[ArmFigures]) -> str:
    header = ["server", "arm", "tokens/s", "auto ÷ it, 95 % interval"]
    rows = [
        [each.server, each.arm, f"{each.tokens_per_s:.1f}", str(each.auto_over_it or "")]
        for each in arms
    ]
    return markdown_table(header, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench control", description=__doc__)
    parser.add_argument("--per-task", type=int, default=3, metavar="N", help="prompts of a task")
    parser.add_argument("--learning", type=int, default=60, metavar="N", help="requests beforehand")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="control", help="of the result files")
    return parser
