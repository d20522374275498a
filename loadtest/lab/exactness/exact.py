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
from pathlib import Path

from loadtest.lab.exactness.comparing import Comparison, Examiner
from loadtest.lab.exactness.exact_report import figures, table
from loadtest.lab.kit.arms import Arm, Case
from loadtest.lab.kit.options import bench_parser, finish, progress
from loadtest.lab.kit.prompts import TokenPrompt, load_token_prompts
from loadtest.lab.kit.repository import add_draft_options, serve_with_drafts
from loadtest.load.settings import SHIPPED_PROMPTS


def main(argv: list[str]) -> int:
    """Compare and report; return 1 if an answer differs or an arm had no draft token accepted."""
    arguments = _parser().parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    files = [load_token_prompts(path, checkpoint) for path in arguments.prompts]
    prompts = [prompt for own, _ in files for prompt in own][: arguments.num_prompts]
    cases = [Case.parse(text) for text in arguments.cases]
    drafters = itertools.product(arguments.drafters, arguments.k or [None])
    arms = [Arm(), *(Arm(*each) for each in drafters)]
    with ExitStack() as stack:
        url = arguments.grpc_url or stack.enter_context(serve_with_drafts(arguments)).grpc_url
        end_id, num_streams = files[0][1], arguments.concurrency
        examiner = Examiner(stack, url, arguments.max_tokens, end_id, num_streams)
        comparisons, num_changed = _run(examiner, prompts, cases, arms, arguments)
    results = figures(comparisons)
    facts = {
        "max_tokens": arguments.max_tokens,
        "concurrency": arguments.concurrency,
        "texts_changed_by_another_seed": num_changed,
        "arms": results,
        "unequal": [each for each in comparisons if not each.is_equal],
    }
    lines = [
        f"{name}: another seed changes {count} of {len(prompts)} texts."
        for name, count in num_changed.items()
    ]
    idle = [
        str(arm)
        for arm in arms[1:]
        if not sum(each.num_accepted for each in comparisons if each.arm == str(arm))
    ]
    faults = [f"{arm} never had a token accepted" for arm in idle]
    faults += [str(each) for each in comparisons if not each.is_equal]
    text = "\n\n".join([table(results), *lines])
    return finish(arguments, argv, facts, text, raw=comparisons, faults=faults)


def _run(
    examiner: Examiner,
    prompts: Sequence[TokenPrompt],
    cases: Sequence[Case],
    arms: Sequence[Arm],
    arguments: argparse.Namespace,
) -> tuple[list[Comparison], dict[str, int]]:
    """Return all comparisons, and by sampled case how many texts another seed changes."""
    seed, sampled = arguments.seed, [case for case in cases if case.temperature > 0.0]

    def is_changed(prompt: TokenPrompt, case: Case) -> bool:
        one, other = (examiner.direct(prompt, case, each).tokens for each in (seed, seed + 1))
        return one != other

    def examine(prompt: TokenPrompt) -> tuple[list[Comparison], list[bool]]:
        # All requests with one prompt follow each other, so its prefix is computed once.
        compared = [each for case in cases for each in examiner.compare(prompt, case, arms, seed)]
        return compared, [is_changed(prompt, case) for case in sampled]

    found: list[Comparison] = []
    changes: list[list[bool]] = []
    with ThreadPoolExecutor(arguments.concurrency) as pool:
        for compared, changed in pool.map(examine, prompts):
            found += compared
            changes.append(changed)
            num_bad = sum(each.first_difference is not None for each in found)
            progress(f"{len(changes)}/{len(prompts)} prompts, {num_bad} of {len(found)} differ")
    print(file=sys.stderr)
    totals = [sum(column) for column in zip(*changes, strict=True)]
    return found, {str(case): total for case, total in zip(sampled, totals, strict=True)}


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("exact", __doc__)
    parser.add_argument("--prompts", type=Path, nargs="+", default=[SHIPPED_PROMPTS])
    parser.add_argument("--num-prompts", type=int, help="use the first N prompts of all files")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--cases", nargs="+", default=["0"], metavar="T[:TOP_P]", help="draws")
    parser.add_argument("--drafters", nargs="+", default=["lookup", "draft", "auto"])
    add_draft_options(parser)
    parser.add_argument("--k", type=int, nargs="+", help="draft tokens (default: configured)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=4, help="prompts asked at once")
    parser.add_argument("--grpc-url", help="a running server (default: start one)")
    return parser
