"""`specdec bench speed`: one stream, speculation on, off, and the target called directly.

No arm profits from what another has computed: see `alternating`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from builder.checkpoints.files import read_config
from builder.parameters import set_parameters
from loadtest.bench.alternating import ask_in_alternation, ask_salted
from loadtest.bench.arms import OFF, ORCHESTRATOR, Arm
from loadtest.bench.asking import DIRECT, Asker
from loadtest.bench.prompting import CHECKPOINT, TokenPrompt, lengthened, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    write_result,
)
from loadtest.bench.repository import COLOCATED, add_colocated, with_drafts
from loadtest.bench.scripted import write_scripts
from loadtest.bench.speed_tables import (
    Measurement,
    acceptance_table,
    acceptances,
    gains,
    gains_table,
    of,
    rate_of,
    rates,
    rates_table,
    round_times,
    times_table,
)
from loadtest.settings import SHIPPED_PROMPTS
from specdec.control.expectation import alpha_of_tau
from specdec.serving.launcher import TritonServer

SCRIPTED = "scripted"


def main(argv: list[str]) -> int:
    """Measure and report; 1 if the first arm was slower than the target alone."""
    arguments = _parser().parse_args(argv)
    prompts, end_id = load_token_prompts(arguments.prompts, CHECKPOINT)
    prompts = lengthened(prompts[:: arguments.every], arguments.context)
    arms = (DIRECT, OFF, *arguments.drafters)
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        repository = _repository(arguments, prompts, end_id, Path(scratch))
        if arguments.learning is None:
            found = ask_in_alternation(repository, prompts, arms, arguments, end_id)
        else:
            found = _ask_one_server(repository, arms, arguments, end_id)
    drafted = [arm for arm in arguments.drafters if Arm.parse(arm).drafter]
    facts, table = report(found, arms, drafted, has_times=arguments.times)
    about = {"conditions": conditions(command_line("speed", argv))}
    about["max_tokens"] = arguments.max_tokens
    write_result(arguments.name, arguments.out, about | facts, table, raw=found)
    best_alone = max(rate_of(of(found, arm)) for arm in arms[:2])
    return 0 if rate_of(of(found, arms[2])) > best_alone else 1


def report(
    found: list[Measurement], arms: Sequence[str], drafted: Sequence[str], *, has_times: bool
) -> tuple[dict[str, Any], str]:
    """Return the figures and their tables; arms after the first two are compared with these."""
    speeds, ratios = rates(found, arms), gains(found, arms[2:], arms[:2])
    acceptance = acceptances(found, drafted)
    times = round_times(found, drafted) if has_times else []
    parts = [rates_table(speeds), gains_table(ratios), acceptance_table(acceptance)]
    parts += [times_table(times)] if times else []
    facts = {"rates": speeds, "gains": ratios, "acceptance": acceptance, "round_times": times}
    return facts, "\n\n".join(part for part in parts if part)


def _ask_one_server(
    repository: Path, arms: Sequence[str], arguments: argparse.Namespace, end_id: int
) -> list[Measurement]:
    """Each arm has the prompts with another salt; it learns from those that are not measured."""
    file, checkpoint = arguments.prompts, CHECKPOINT
    salted = {
        arm: load_token_prompts(file, checkpoint, f"{number:02}")[0][:: arguments.every]
        for number, arm in enumerate(arms)
    }
    others, _ = load_token_prompts(file, checkpoint, "learn")
    measured = set(others[:: arguments.every])
    left = [prompt for prompt in others if prompt not in measured] or list(others)
    learning = [(prompt, arm) for prompt in left[: arguments.learning] for arm in arms]
    return ask_salted(repository, salted, learning, arguments, end_id)


def _repository(
    arguments: argparse.Namespace, prompts: Sequence[TokenPrompt], end_id: int, scratch: Path
) -> Path:
    """What the arms ask for: the repository as it is, or a copy with more in it."""
    names = [Arm.parse(arm) for arm in arguments.drafters]
    taus = {name: float(name[len(SCRIPTED) :]) for name in _scripted(names)}
    if not taus and all(arm.model == ORCHESTRATOR for arm in names):
        return Path(arguments.model_repository)
    copy = with_drafts(arguments.model_repository, scratch / "repository", [])
    if taus:
        files = {name: scratch / f"{name}.jsonl" for name in taus}
        answers = _answers(arguments, prompts, end_id)
        k = arguments.scripted_num_draft_tokens
        vocab_size = read_config(CHECKPOINT)["vocab_size"]
        for name, tau in taus.items():
            write_scripts(files[name], prompts, answers, alpha_of_tau(tau, k), vocab_size)
        set_parameters(
            copy / "specdec",
            scripted_drafters=",".join(f"{name}={file}" for name, file in files.items()),
            lookup_num_draft_tokens=str(k),
        )
    if any(arm.model == COLOCATED for arm in names):
        add_colocated(copy, scratch)
    return copy


def _scripted(arms: list[Arm]) -> set[str]:
    return {arm.drafter for arm in arms if arm.drafter and arm.drafter.startswith(SCRIPTED)}


def _answers(
    arguments: argparse.Namespace, prompts: Sequence[TokenPrompt], end_id: int
) -> dict[str, tuple[int, ...]]:
    with (
        TritonServer(arguments.model_repository) as server,
        closing(Asker(server, arguments, end_id)) as asker,
    ):
        return {prompt.prompt_id: asker.ask_directly(prompt).tokens for prompt in prompts}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench speed", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--drafters",
        nargs="+",
        default=["auto"],
        metavar="DRAFTER[:GUESSES][/VERIFICATION][@MODEL]",
        help="arms with speculation; the first is the one judged (default: auto). scripted3: one "
        "that knows the answer and is right so often that a round gives 3 tokens; @colocated: an "
        "orchestrator with the engines in its own process; off@colocated is an arm too",
    )
    parser.add_argument(
        "--scripted-num-draft-tokens", type=int, default=4, metavar="K", help="of scripted drafters"
    )
    parser.add_argument("--case", default="0", metavar="T[:TOP_P]", help="how tokens are drawn")
    parser.add_argument("--every", type=int, default=1, help="take every n-th prompt")
    parser.add_argument(
        "--context", type=int, default=0, help="put other prompts in front, up to so many tokens"
    )
    parser.add_argument(
        "--learning",
        type=int,
        metavar="N",
        help="one server for all arms, which gets N other prompts of each arm to learn from; "
        "prompts are salted (default: a new server for each pass over the prompts)",
    )
    parser.add_argument(
        "--times", action="store_true", help="also report where the rounds' time goes"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of prompts")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="speed", help="of the result files")
    return parser
