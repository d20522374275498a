"""`specdec bench tasks`: ten kinds of task and each drafter, beside the ranges of a guide.

The prompts are ours that no training saw (`held_out` in `builder/distill/prompts`). There is one
stream, and no arm profits from what another has computed: see `loadtest/kit/alternating.py`.
"""

from __future__ import annotations

from collections import Counter

from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.alternating import ask_in_alternation
from specdec.loadtest.kit.arms import DIRECT, OFF
from specdec.loadtest.kit.asking import RequestSettings
from specdec.loadtest.kit.guide import TASKS
from specdec.loadtest.kit.options import add_max_tokens, arm_text, bench_parser, finish
from specdec.loadtest.kit.prompts import as_tokens, held_out_prompts
from specdec.loadtest.kit.speed_tables import rates, rates_table
from specdec.loadtest.lab.speed.task_picture import plot_tasks
from specdec.loadtest.lab.speed.task_tables import figures, outcomes, tables

DRAFTERS = ("lookup", "suffix", "draft", "eagle3", "auto")


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if a drafter never had a token accepted."""
    parser = bench_parser("tasks", __doc__)
    parser.add_argument(
        "--per-task", type=positive, metavar="N", help="prompts per task (default: all)"
    )
    add_max_tokens(parser, 128)
    parser.add_argument(
        "--drafters",
        type=arm_text,
        nargs="+",
        default=DRAFTERS,
        metavar="DRAFTER[:K]",
        help=f"K draft tokens a round, else as configured (default: {' '.join(DRAFTERS)})",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of prompts")
    arguments = parser.parse_args(argv)
    prompts = as_tokens(held_out_prompts(arguments.per_task), arguments.model_repository)
    arms = (DIRECT, OFF, *arguments.drafters)
    settings = RequestSettings(arguments.max_tokens, seed=arguments.seed, has_statistics=True)
    found = sorted(
        ask_in_alternation(arguments.model_repository, prompts, arms, settings),
        key=lambda each: list(TASKS).index(each.column),
    )
    known, speeds = outcomes(found, arguments.drafters), rates(found, arms)
    facts = {
        "max_tokens": arguments.max_tokens,
        "num_prompts": Counter(prompt.column for prompt in prompts),
        "outcomes": figures(known),
        "rates": speeds,
    }
    table = "\n\n".join([tables(known), rates_table(speeds)])
    never_accepted = [
        each for each in arguments.drafters if not known[None, each].counts.num_accepted
    ]
    faults = [f"{drafter}: no token was accepted" for drafter in never_accepted]
    status = finish(arguments, argv, facts, table, raw=found, faults=faults)
    title = f"{len(prompts)} held-out prompts, greedy, {arguments.max_tokens} tokens"
    plot_tasks(known, title, arguments.out / f"{arguments.name}.png")
    return status
