"""`specdec bench acceptance`: the acceptance by task, drafter, verification mode and draw.

docs/glossary.md defines τ and α̂. Trees have no single k, and block verification compares no token
alone: they have τ only.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from specdec.clients import GenerationRequest, GrpcClient
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit import options
from specdec.loadtest.kit.answers import Measurement, answers_of_arm, counts_of
from specdec.loadtest.kit.arms import Arm, Case
from specdec.loadtest.kit.asking import find_at_once, measure
from specdec.loadtest.kit.prompts import TokenPrompt, as_tokens
from specdec.loadtest.kit.repository import add_draft_options, serve_with_drafts
from specdec.loadtest.kit.speed_tables import acceptance_table, acceptances

ARMS = ("lookup", "draft", "auto", "draft/rejection", "draft/block", "draft/typical")


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if an arm never had a token accepted."""
    arguments = _parser().parse_args(argv)
    plan = {
        f"{case}: {arm}": (case, arm)
        for case in arguments.cases
        for arm in map(Arm.parse, arguments.arms)
        if case.temperature > 0 or not arm.verification
    }
    found = _measure(plan, arguments)
    results = acceptances(found, {name: arm for name, (_, arm) in plan.items()})
    most, at_once = arguments.max_tokens, arguments.concurrency
    facts = {"max_tokens": most, "concurrency": at_once, "arms": results}
    faults = [
        f"{name}: no token was accepted"
        for name, (_, arm) in plan.items()
        if arm.drafter and not counts_of(answers_of_arm(found, name)).num_accepted
    ]
    table = acceptance_table(results)
    return options.finish(arguments, argv, facts, table, raw=found, faults=faults)


def _measure(
    plan: Mapping[str, tuple[Case, Arm]], arguments: argparse.Namespace
) -> list[Measurement]:
    prompts = as_tokens(arguments.prompts[:: arguments.every], arguments.model_repository)
    seeded = list(enumerate(prompts, start=arguments.seed))
    with serve_with_drafts(arguments) as server, GrpcClient(server.grpc_url) as client:

        def ask_all(one: tuple[int, TokenPrompt]) -> list[Measurement]:
            # All requests with one prompt follow each other, so its prefix is computed once.
            (seed, prompt), answers = one, []
            for name, (case, arm) in plan.items():
                request = GenerationRequest(
                    input_ids=list(prompt.token_ids),
                    max_tokens=arguments.max_tokens,
                    return_perf_metrics=True,
                    # So an arm's suffix drafter knows no other arm's answers.
                    tenant=name,
                    **case.fields(seed),
                    **arm.fields(),
                )
                answers.append(measure(client, request, (prompt.prompt_id, prompt.column, name)))
            return answers

        return find_at_once(ask_all, seeded, arguments.concurrency)


def _parser() -> argparse.ArgumentParser:
    parser = options.bench_parser("acceptance", __doc__)
    options.add_prompt_options(parser, max_tokens=64)
    options.add_cases(parser, ("0", "0.7", "1"))
    parser.add_argument(
        "--arms",
        type=options.arm_text,
        nargs="+",
        default=ARMS,
        metavar="DRAFTER[:K][/VERIFICATION]",
        help="K draft tokens a round; a verification mode is asked at temperatures above 0 only",
    )
    add_draft_options(parser)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first prompt")
    parser.add_argument("--concurrency", type=positive, default=8, help="prompts asked at once")
    return parser
