"""`specdec bench exact`: compare answers with each drafter with the target's own.

It asks the model `target` directly, then `specdec` without speculation and with each drafter, on a
live server. Token ids and the bits of log-probabilities must be equal.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.argument_types import prompt_file
from specdec.loadtest.kit.arms import Arm
from specdec.loadtest.kit.options import add_cases, add_max_tokens, bench_parser, finish, progress
from specdec.loadtest.kit.prompts import TokenPrompt, load_token_prompts
from specdec.loadtest.kit.repository import add_draft_options, serve_with_drafts
from specdec.loadtest.lab.exactness.comparing import AnswerComparer, Comparison
from specdec.loadtest.lab.exactness.exact_report import figures, table
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

DRAFTERS = ("lookup", "draft", "auto")


def main(argv: list[str]) -> int:
    """Compare and report; return 1 if an answer differs or an arm had no draft token accepted."""
    arguments = _parser().parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    files = [load_token_prompts(path, checkpoint) for path in arguments.prompts]
    prompts = [prompt for own, _ in files for prompt in own]
    drafters = itertools.product(arguments.drafters, arguments.k or [None])
    arms = [Arm(), *(Arm(*each) for each in drafters)]
    with ExitStack() as stack:
        url = arguments.grpc_url or stack.enter_context(serve_with_drafts(arguments)).grpc_url
        end_id, num_streams = files[0][1], arguments.concurrency
        comparer = AnswerComparer(stack, url, arguments.max_tokens, end_id, num_streams)
        comparisons = _compare(comparer, prompts, arms, arguments)
    results = figures(comparisons)
    facts = {
        "max_tokens": arguments.max_tokens,
        "concurrency": arguments.concurrency,
        "arms": results,
        "unequal": [each for each in comparisons if not each.is_equal],
    }
    faults = [
        f"{arm} never had a token accepted"
        for arm in arms[1:]
        if not sum(each.num_accepted for each in comparisons if each.arm == str(arm))
    ]
    faults += [str(each) for each in comparisons if not each.is_equal]
    return finish(arguments, argv, facts, table(results), raw=comparisons, faults=faults)


def _compare(
    comparer: AnswerComparer,
    prompts: Sequence[TokenPrompt],
    arms: Sequence[Arm],
    arguments: argparse.Namespace,
) -> list[Comparison]:
    def compare_prompt(prompt: TokenPrompt) -> list[Comparison]:
        # All requests with one prompt follow each other, so its prefix is computed once.
        seed = arguments.seed
        return [
            each for case in arguments.cases for each in comparer.compare(prompt, case, arms, seed)
        ]

    found: list[Comparison] = []
    with ThreadPoolExecutor(arguments.concurrency) as pool:
        for number, compared in enumerate(pool.map(compare_prompt, prompts), start=1):
            found += compared
            num_bad = sum(each.first_difference is not None for each in found)
            progress(f"{number}/{len(prompts)} prompts, {num_bad} of {len(found)} answers differ")
    print(file=sys.stderr)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("exact", __doc__)
    parser.add_argument(
        "--prompts", type=prompt_file, nargs="+", default=[SHIPPED_PROMPTS], help="default: ours"
    )
    add_max_tokens(parser, 128)
    add_cases(parser, ("0",))
    parser.add_argument(
        "--drafters", nargs="+", default=DRAFTERS, help="default: lookup draft auto"
    )
    add_draft_options(parser)
    parser.add_argument(
        "--k", type=positive, nargs="+", help="draft tokens a round (default: as served)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the draws")
    parser.add_argument("--concurrency", type=positive, default=4, help="prompts asked at once")
    parser.add_argument("--grpc-url", help="a running server (default: start one)")
    return parser
