"""`specdec bench acceptance`: how much of what is drafted stands, by task, drafter, rule and draw.

τ is the mean number of tokens of a round with a draft, the target's own included; α̂ the share of
drafted tokens that stand among those that were reached, Σ accepted / Σ min(accepted + 1, k). A tree
has no single k, and block verification judges no token alone: they have τ only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count as counting
from pathlib import Path
from tempfile import TemporaryDirectory

from clients import GenerationRequest, GrpcClient
from loadtest.bench.arms import Arm, Case
from loadtest.bench.counting import DraftCounts, count, together
from loadtest.bench.prompting import CHECKPOINT, TokenPrompt, load_token_prompts
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
class Counts:
    """The draft tokens of one answer."""

    column: str
    case: str
    arm: str
    drafts: DraftCounts


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """The draft tokens of all answers of one arm at one draw; None where nothing was drafted."""

    case: str
    arm: str
    counts: DraftCounts
    tau: float | None
    conditional_acceptance: float | None
    """None also of trees and block verification."""
    tau_by_column: dict[str, float | None]


def main(argv: list[str]) -> int:
    """Measure and report; 1 if an arm never had a token accepted."""
    arguments = _parser().parse_args(argv)
    prompts, _ = load_token_prompts(arguments.prompts, CHECKPOINT)
    prompts = prompts[:: arguments.every]
    cases = [Case.parse(text) for text in arguments.cases]
    arms = [Arm.parse(text) for text in arguments.arms]
    plan = [
        (case, arm)
        for case in cases
        for arm in arms
        if case.temperature > 0 or not arm.verification
    ]
    with ExitStack() as stack:
        repository = arguments.model_repository
        if arguments.draft:
            directory = Path(stack.enter_context(TemporaryDirectory()))
            repository = with_drafts(repository, directory, arguments.draft, arguments.translation)
        server = stack.enter_context(TritonServer(repository))
        client = stack.enter_context(GrpcClient(server.grpc_url))
        found: list[Counts] = []

        def ask_all(seed: int, prompt: TokenPrompt) -> list[Counts]:
            # All of one prompt together: its prefix is computed once.
            return [_ask(client, prompt, *each, arguments.max_tokens, seed) for each in plan]

        with ThreadPoolExecutor(arguments.concurrency) as pool:
            for number, counts in enumerate(
                pool.map(ask_all, counting(arguments.seed), prompts), 1
            ):
                found += counts
                print(f"\r{number}/{len(prompts)} prompts", end="", file=sys.stderr)
        print(file=sys.stderr)
    results = [figures(found, *each) for each in plan]
    facts = {
        "conditions": conditions(command_line("acceptance", argv)),
        "max_tokens": arguments.max_tokens,
        "concurrency": arguments.concurrency,
        "arms": results,
    }
    table = _table(results) + "\n\nτ by column:\n\n" + _by_column(results)
    write_result(arguments.name, arguments.out, facts, table, raw=found)
    idle = [
        own
        for own, (_, arm) in zip(results, plan, strict=True)
        if arm.drafter and not own.counts.num_accepted
    ]
    for own in idle:
        print(f"BROKEN: {own.case}, {own.arm}: no token was accepted", file=sys.stderr)
    return 1 if idle else 0


def _ask(
    client: GrpcClient, prompt: TokenPrompt, case: Case, arm: Arm, max_tokens: int, seed: int
) -> Counts:
    request = GenerationRequest(
        input_ids=list(prompt.token_ids),
        max_tokens=max_tokens,
        return_perf_metrics=True,
        tenant=f"{case} {arm}",  # or suffix decoding would remember other arms' answers
        **case.fields(seed),
        **arm.fields(),
    )
    final = client.generate(request).final
    known = count(final.num_output_tokens or 0, final.speculative_decoding or {})
    return Counts(prompt.column, str(case), str(arm), known)


def figures(found: Sequence[Counts], case: Case, arm: Arm) -> ArmFigures:
    """Sum up all answers of one arm at one draw."""
    own = [each for each in found if (each.case, each.arm) == (str(case), str(arm))]
    counts = together(each.drafts for each in own)
    columns = dict.fromkeys(each.column for each in found)  # In one order for all arms.
    return ArmFigures(
        str(case),
        str(arm),
        counts,
        counts.tau,
        counts.conditional_acceptance if arm.has_chains else None,
        {
            name: together(each.drafts for each in own if each.column == name).tau
            for name in columns
        },
    )


def _table(results: Sequence[ArmFigures]) -> str:
    header = ["draw", "drafter, verification", "τ", "α̂", "accepted / drafted", "drafted rounds"]
    header.append("tokens / round")
    rows = [
        [
            each.case,
            each.arm,
            shown(each.tau, 2),
            shown(each.conditional_acceptance, 3),
            shown(each.counts.acceptance_rate, 3),
            f"{each.counts.drafted_share:.2f}",
            f"{each.counts.tokens_per_round:.2f}",
        ]
        for each in results
    ]
    return markdown_table(header, rows)


def _by_column(results: Sequence[ArmFigures]) -> str:
    rows = [
        [each.case, each.arm, *(shown(tau, 2) for tau in each.tau_by_column.values())]
        for each in results
    ]
    columns = results[0].tau_by_column if results else {}
    return markdown_table(["draw", "drafter, verification", *columns], rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench acceptance", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--every", type=int, default=1, help="take every n-th prompt")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--cases", nargs="+", default=["0", "0.7", "1"], metavar="T[:TOP_P]")
    parser.add_argument(
        "--arms",
        nargs="+",
        default=["lookup", "draft", "auto", "draft/rejection", "draft/block", "draft/typical"],
        metavar="DRAFTER[:K][/VERIFICATION]",
        help="K guesses a round, else what is configured; with a verification named, at "
        "temperatures above 0 only",
    )
    add_draft_options(parser)
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first prompt; then one more each"
    )
    parser.add_argument("--concurrency", type=int, default=8, help="prompts under way at once")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="acceptance", help="of the result files")
    return parser
