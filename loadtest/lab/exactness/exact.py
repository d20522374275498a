"""`specdec bench exact`: compare answers with each drafter with the target's own.

It asks the model `target` directly, then `specdec` without speculation and with each drafter, on a
live server. Token ids and the bits of log-probabilities must be equal.
"""

from __future__ import annotations

import argparse
import itertools
from contextlib import ExitStack

from specdec.clients import GrpcClient
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit import options
from specdec.loadtest.kit.arms import Arm
from specdec.loadtest.kit.asking import RequestSettings, find_at_once
from specdec.loadtest.kit.prompts import TokenPrompt, as_tokens
from specdec.loadtest.kit.repository import add_draft_options, serve_with_drafts
from specdec.loadtest.lab.exactness.comparing import Comparison, compare
from specdec.loadtest.lab.exactness.exact_report import figures, table
from specdec.loadtest.load.prompts import load_prompts
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

DRAFTERS = ("lookup", "draft", "auto")


def main(argv: list[str]) -> int:
    """Compare and report; return 1 if an answer differs or an arm had no draft token accepted."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.grpc_url and arguments.draft:
        parser.error("--draft adds a model to the server that is started, so not with --grpc-url")
    asked = itertools.chain.from_iterable(arguments.prompts)
    prompts = as_tokens(asked, arguments.model_repository)
    drafters = itertools.product(arguments.drafters, arguments.k or [None])
    arms = [Arm(), *(Arm(*each) for each in drafters)]
    most, seed = arguments.max_tokens, arguments.seed
    settings = [RequestSettings(most, case, seed) for case in arguments.cases]
    with ExitStack() as stack:
        url = arguments.grpc_url or stack.enter_context(serve_with_drafts(arguments)).grpc_url
        client = stack.enter_context(GrpcClient(url))

        def compare_all(prompt: TokenPrompt) -> list[Comparison]:
            # All requests with one prompt follow each other, so its prefix is computed once.
            return [each for own in settings for each in compare(client, url, prompt, arms, own)]

        comparisons = find_at_once(compare_all, prompts, arguments.concurrency)
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
    text = table(results)
    return options.finish(arguments, argv, facts, text, raw=comparisons, faults=faults)


def _parser() -> argparse.ArgumentParser:
    parser = options.bench_parser("exact", __doc__)
    parser.add_argument(
        "--prompts",
        type=options.read_prompts,
        nargs="+",
        default=[load_prompts(SHIPPED_PROMPTS)],
        help="JSONL files (default: ours)",
    )
    options.add_max_tokens(parser, 128)
    options.add_cases(parser, ("0",))
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
