"""`specdec bench tasks`: ten kinds of task, each drafter, beside what a guide says to expect.

The prompts are ours that no training saw: every 20th of `builder/prompts` in the order in which
training numbers them (`builder.distill.prompts.held_out`). One stream; no arm profits from what
another has computed: see `alternating`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from loadtest.bench.alternating import ask_in_alternation
from loadtest.bench.arms import OFF
from loadtest.bench.article import TASKS
from loadtest.bench.asking import DIRECT
from loadtest.bench.prompting import as_tokens, held_out_prompts
from loadtest.bench.reporting import RESULTS, command_line, conditions, write_result
from loadtest.bench.speed_tables import rates, rates_table
from loadtest.bench.task_picture import plot_tasks
from loadtest.bench.task_tables import distance_table, figures, outcomes, tables

DRAFTERS = ("lookup", "suffix", "draft", "eagle3", "auto")


def main(argv: list[str]) -> int:
    """Measure and report; 1 if a drafter never had a token accepted."""
    arguments = _parser().parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    prompts, end_id = as_tokens(held_out_prompts(arguments.per_task), checkpoint)
    arms = (DIRECT, OFF, *arguments.drafters)
    found = sorted(
        ask_in_alternation(arguments.model_repository, prompts, arms, arguments, end_id),
        key=lambda each: list(TASKS).index(each.column),
    )
    known, speeds = outcomes(found, arguments.drafters), rates(found, arms)
    facts = {
        "conditions": conditions(command_line("tasks", argv)),
        "max_tokens": arguments.max_tokens,
        "num_prompts": Counter(prompt.column for prompt in prompts),
        "outcomes": figures(known),
        "rates": speeds,
    }
    table = "\n\n".join([tables(known), distance_table(known), rates_table(speeds)])
    write_result(arguments.name, arguments.out, facts, table, raw=found)
    title = (
        f"{len(prompts)} held-out prompts, greedy, {arguments.max_tokens} tokens; "
        f"{facts['conditions']['processor']}, {facts['conditions']['num_cores']} cores"
    )
    plot_tasks(known, title, arguments.out / f"{arguments.name}.png")
    idle = [each for each in arguments.drafters if not known[None, each].counts.num_accepted]
    for drafter in idle:
        print(f"BROKEN: {drafter}: no token was accepted", file=sys.stderr)
    return 1 if idle else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench tasks", description=__doc__)
    parser.add_argument(
        "--per-task", type=int, metavar="N", help="prompts of a task (default: all)"
    )
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--drafters",
        nargs="+",
        default=list(DRAFTERS),
        metavar="DRAFTER[:GUESSES]",
        help=f"default: {' '.join(DRAFTERS)}, with as many guesses a round as are configured",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of prompts")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="tasks", help="of the result files")
    parser.set_defaults(case="0", times=True)  # of an `Asker`: greedy, with statistics
    return parser
