"""`specdec bench exact`: on = off = target, token for token, through a live server."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtest.bench.arms import Arm, Case
from loadtest.bench.comparing import Comparison, Examiner
from loadtest.bench.prompting import TokenPrompt, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    shown,
    write_result,
)
from loadtest.bench.repository import add_draft_options, with_drafts
from loadtest.settings import SHIPPED_PROMPTS
from specdec.serving.launcher import TritonServer


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """Sums over the answers of one arm at one draw; τ is None where nothing was drafted."""

    case: str
    arm: str
    num_answers: int
    num_equal: int
    num_equal_log_probs: int
    num_tokens: int
    num_steps: int
    num_drafted: int
    num_accepted: int

    @property
    def tau(self) -> float | None:
        return 1 + self.num_accepted / self.num_steps if self.num_steps else None

    @property
    def acceptance_rate(self) -> float | None:
        return self.num_accepted / self.num_drafted if self.num_drafted else None


def main(argv: list[str]) -> int:
    """Run the proof; 1 if any answer differs or an arm never speculated."""
    arguments = _parser().parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    prompts: list[TokenPrompt] = []
    for path in arguments.prompts:
        found, arguments.end_id = load_token_prompts(path, checkpoint)
        prompts += found
    prompts = prompts[: arguments.num_prompts]
    cases = [Case.parse(text) for text in arguments.cases]
    drafters = itertools.product(arguments.drafters, arguments.k or [None])
    arms = [Arm(), *(Arm(*each) for each in drafters)]
    with ExitStack() as stack:
        url = arguments.grpc_url
        if url is None:
            repository = arguments.model_repository
            if arguments.draft:
                directory = Path(stack.enter_context(TemporaryDirectory()))
                repository = with_drafts(
                    repository, directory, arguments.draft, arguments.translation
                )
            url = stack.enter_context(TritonServer(repository)).grpc_url
        examiner = Examiner(stack, url, arguments)
        comparisons, num_changed = _run(examiner, prompts, cases, arms, arguments)
    results = figures(comparisons)
    facts = {
        "conditions": conditions(command_line("exact", argv)),
        "max_tokens": arguments.max_tokens,
        "concurrency": arguments.concurrency,
        "texts_changed_by_another_seed": num_changed,
        "arms": results,
        "unequal": [each for each in comparisons if not each.is_equal],
    }
    table = _table(results)
    for name, (changed, total) in num_changed.items():
        table += f"\n\n{name}: another seed changes {changed} of {total} texts."
    write_result(arguments.name, arguments.out, facts, table, raw=comparisons)
    return _verdict(comparisons, arms)


def _run(
    examiner: Examiner,
    prompts: Sequence[TokenPrompt],
    cases: Sequence[Case],
    arms: Sequence[Arm],
    arguments: argparse.Namespace,
) -> tuple[list[Comparison], dict[str, tuple[int, int]]]:
    """All comparisons, and for each sampled case how many texts another seed changes."""
    sampled = [case for case in cases if case.temperature > 0.0]

    def examine(prompt: TokenPrompt) -> tuple[list[Comparison], list[bool]]:
        # All of one prompt together: its prefix is computed once.
        compared = [each for case in cases for each in examiner.compare(prompt, case, arms)]
        return compared, [_changes(examiner, prompt, case, arguments.seed) for case in sampled]

    found: list[Comparison] = []
    changes: list[list[bool]] = []
    with ThreadPoolExecutor(arguments.concurrency) as pool:
        for compared, changed in pool.map(examine, prompts):
            found += compared
            changes.append(changed)
            bad = sum(each.first_difference is not None for each in found)
            text = f"\r{len(changes)}/{len(prompts)} prompts, {bad} of {len(found)} answers differ"
            print(text, end="", file=sys.stderr)
    print(file=sys.stderr)
    totals = [sum(column) for column in zip(*changes, strict=True)]
    num_changed = {
        str(case): (total, len(prompts)) for case, total in zip(sampled, totals, strict=True)
    }
    return found, num_changed


def _changes(examiner: Examiner, prompt: TokenPrompt, case: Case, seed: int) -> bool:
    """Whether another seed makes another text."""
    one, other = (examiner.direct(prompt, case, each).tokens for each in (seed, seed + 1))
    return one != other


def _verdict(comparisons: Sequence[Comparison], arms: Sequence[Arm]) -> int:
    broken = 0
    for arm in arms[1:]:
        if not sum(each.num_accepted for each in comparisons if each.arm == str(arm)):
            print(f"BROKEN: {arm} never had a token accepted", file=sys.stderr)
            broken += 1
    for each in comparisons:
        if not each.is_equal:
            place = each.first_difference
            where = "in its log-probabilities" if place is None else f"at token {place}"
            text = f"BROKEN: prompt {each.prompt_id}, {each.case}, {each.arm}: differs {where}"
            print(text, file=sys.stderr)
            broken += 1
    return 1 if broken else 0


def figures(comparisons: Sequence[Comparison]) -> list[ArmFigures]:
    """Sum up the comparisons by draw and arm."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for each in comparisons:
        groups.setdefault((each.case, each.arm), []).append(each)
    return [
        ArmFigures(
            case,
            arm,
            len(own),
            sum(each.first_difference is None for each in own),
            sum(each.equal_log_probs for each in own),
            sum(each.num_tokens for each in own),
            sum(each.num_steps for each in own),
            sum(each.num_drafted for each in own),
            sum(each.num_accepted for each in own),
        )
        for (case, arm), own in groups.items()
    ]


def _table(arms: Sequence[ArmFigures]) -> str:
    rows = [
        [
            each.case,
            each.arm,
            f"{each.num_equal} of {each.num_answers}",
            f"{each.num_equal_log_probs} of {each.num_answers}",
            str(each.num_tokens),
            str(each.num_drafted),
            str(each.num_accepted),
            shown(each.acceptance_rate, 3),
            shown(each.tau, 2),
        ]
        for each in arms
    ]
    header = ["draw", "arm", "equal to target", "log-probs bit-equal", "tokens"]
    header += ["drafted", "accepted", "accepted / drafted", "τ"]
    return markdown_table(header, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec bench exact",
        description="Asks the model `target` directly for each prompt, then `specdec` without "
        "speculation and with each drafter, and compares token ids and log-probabilities.",
    )
    parser.add_argument(
        "--prompts", type=Path, nargs="+", default=[SHIPPED_PROMPTS], help="JSONL files"
    )
    parser.add_argument("--num-prompts", type=int, help="the first so many of all files")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--cases",
        nargs="+",
        default=["0"],
        metavar="T[:TOP_P]",
        help="temperatures, with or without a nucleus (default: 0, greedy)",
    )
    parser.add_argument("--drafters", nargs="+", default=["lookup", "draft", "auto"])
    add_draft_options(parser)
    parser.add_argument("--k", type=int, nargs="+", help="draft lengths (default: configured)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=4, help="prompts under way at once")
    parser.add_argument("--grpc-url", help="a running server (default: one is started)")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="exact", help="of the result files")
    return parser
