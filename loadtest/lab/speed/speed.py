"""`specdec bench speed`: one stream with speculation on and off, and the target called directly.

No arm profits from what another has computed: see `specdec.loadtest.kit.alternating`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specdec.loadtest.kit import options, speed_tables
from specdec.loadtest.kit.alternating import ask_in_alternation, ask_salted
from specdec.loadtest.kit.answers import Measurement, answers_of_arm, rate_of
from specdec.loadtest.kit.arms import DIRECT, OFF, Arm
from specdec.loadtest.kit.asking import RequestSettings
from specdec.loadtest.kit.prompts import as_tokens, lengthened
from specdec.loadtest.kit.repository import with_colocated


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if the first arm was not faster than without speculation."""
    arguments = _parser().parse_args(argv)
    prompts = arguments.prompts[:: arguments.every]
    arms = (DIRECT, OFF, *arguments.drafters)
    settings = RequestSettings(
        arguments.max_tokens, arguments.case, arguments.seed, arguments.times
    )
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        repository = with_colocated(arguments.model_repository, arms, Path(scratch))
        if arguments.learning is None:
            asked = lengthened(as_tokens(prompts, repository), arguments.context)
            found = ask_in_alternation(repository, asked, arms, settings)
        else:
            left = [each for each in arguments.prompts if each not in prompts] or prompts
            learning = [(prompt, arm) for prompt in left[: arguments.learning] for arm in arms]
            found = ask_salted(repository, prompts, arms, learning, settings)
    drafted = [arm for arm in arguments.drafters if Arm.parse(arm).drafter]
    facts, table = report(found, arms, drafted, has_times=arguments.times)
    facts = {"max_tokens": arguments.max_tokens, **facts}
    own, *others = (rate_of(answers_of_arm(found, arm)) for arm in (arms[2], *arms[:2]))
    faults = [] if own > max(others) else [f"{arms[2]} is slower than without speculation"]
    return options.finish(arguments, argv, facts, table, raw=found, faults=faults)


def report(
    found: list[Measurement], arms: Sequence[str], drafted: Sequence[str], *, has_times: bool
) -> tuple[dict[str, Any], str]:
    """Return figures and tables; all arms after the first two are compared with these two."""
    speeds, gains = speed_tables.rates(found, arms), speed_tables.gains(found, arms[2:], arms[:2])
    acceptance = speed_tables.acceptances(found, {arm: Arm.parse(arm) for arm in drafted})
    times = speed_tables.round_times(found, drafted) if has_times else []
    parts = [speed_tables.rates_table(speeds), speed_tables.gains_table(gains)]
    parts += [speed_tables.acceptance_table(acceptance)]
    parts += [speed_tables.times_table(times)] if times else []
    facts = {"rates": speeds, "gains": gains, "acceptance": acceptance, "round_times": times}
    return facts, "\n\n".join(part for part in parts if part)


def _parser() -> argparse.ArgumentParser:
    parser = options.bench_parser("speed", __doc__)
    options.add_prompt_options(parser, max_tokens=128)
    parser.add_argument(
        "--drafters",
        type=options.arm_text,
        nargs="+",
        default=["auto"],
        metavar="DRAFTER[:K][/VERIFICATION][@MODEL]",
        help="arms with speculation; the first decides the exit status (default: auto). @colocated "
        "asks an orchestrator with the engines in its own process; off@colocated is an arm too",
    )
    options.add_case(parser)
    # Lengthened prompts begin with other prompts, cut so that the arm's salt is lost.
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--context", type=int, default=0, metavar="N", help="lengthen prompts to N tokens"
    )
    either.add_argument(
        "--learning",
        type=int,
        metavar="N",
        help="use one server for all arms, which first gets N other prompts in each arm "
        "(default: a new server for each pass over the prompts)",
    )
    parser.add_argument("--times", action="store_true", help="report the parts of a round's time")
    parser.add_argument("--seed", type=int, default=1, help="seed of draws and prompt order")
    return parser
