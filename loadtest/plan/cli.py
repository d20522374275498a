"""`specdec plan`: answer what-if questions about a pair by formula, with tables and a plot."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specdec.estimates.formulas import alpha_of_rate, alpha_of_tau
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.guide import NUM_DRAFT_TOKENS
from specdec.loadtest.plan.choosing import DraftConditions, Recommendation, recommend
from specdec.loadtest.plan.costs import Costs
from specdec.loadtest.plan.tables import (
    Question,
    describe_acceptance,
    guide_table,
    lengths_table,
    loads_table,
)


def main(argv: list[str]) -> int:
    """Print the answer and return 0; exit with status 2 for a question that makes no sense."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        parts = _answer(arguments)
    except ValueError as error:
        parser.error(str(error))
    print("\n\n".join(parts))
    return 0


def _answer(arguments: argparse.Namespace) -> list[str]:
    costs = _costs(arguments)
    alphas = _alphas(arguments)
    parts = []
    if alphas:
        has_times = bool(arguments.pass_ms or arguments.target_ms)
        question = Question(alphas, costs, tuple(arguments.batch), arguments.tokens, has_times)
        parts += [describe_acceptance(alphas), *_tables(question), _verdict(question)]
        if arguments.plot:
            # It needs matplotlib, and the tables do not.
            from specdec.loadtest.plan.picture import plot_plan  # noqa: PLC0415

            plot_plan(question, describe_acceptance(alphas), arguments.plot)
            print(f"written: {arguments.plot}", file=sys.stderr)
    elif arguments.plot:
        raise ValueError("a plot needs an acceptance: --alpha, --alphas, --rate or --tau")
    elif arguments.target_params is None:
        parts += [
            "No acceptance given: a guide's acceptance for ten tasks, and its gain at these costs.",
            guide_table(costs, arguments.max_k),
        ]
    if arguments.target_params is not None:
        parts.append(_shown(recommend(_conditions(arguments))))
    return parts


def _alphas(arguments: argparse.Namespace) -> tuple[float, ...]:
    """Return α by position, one for each of up to --max-k draft tokens; empty if none is given."""
    if arguments.alphas:
        return tuple(arguments.alphas)
    if arguments.rate is not None:
        alpha = alpha_of_rate(arguments.rate, arguments.at_k)
    elif arguments.tau is not None:
        alpha = alpha_of_tau(arguments.tau, arguments.at_k)
    elif arguments.alpha is not None:
        alpha = arguments.alpha
    else:
        return ()
    return (float(alpha),) * int(arguments.max_k)


def _costs(arguments: argparse.Namespace) -> Costs:
    pass_ms = dict(arguments.pass_ms or [(1, arguments.target_ms or 1.0)])
    draft_ms = arguments.draft_ms
    if draft_ms is None:
        draft_ms = arguments.cost * pass_ms[min(pass_ms)]
    return Costs(pass_ms, draft_ms, arguments.overhead_ms)


def _tables(question: Question) -> list[str]:
    several = len(question.batch_sizes) > 1
    tables = [loads_table(question)] if several else []
    for batch_size in question.batch_sizes:
        head = f"{batch_size} in a pass:\n\n" if several else ""
        tables.append(head + lengths_table(question, batch_size))
    return tables


def _verdict(question: Question) -> str:
    lines = []
    for batch_size in question.batch_sizes:
        best = question.best(batch_size)
        where = f"{batch_size} in a pass: " if len(question.batch_sizes) > 1 else ""
        if best.num_draft_tokens:
            lines.append(f"{where}k = {best.num_draft_tokens}, {best.speed_up:.2f} × plain steps")
        else:
            lines.append(where + "speculation off: no k pays")
    return "Best: " + "; ".join(lines) + "."


def _conditions(arguments: argparse.Namespace) -> DraftConditions:
    return DraftConditions(
        target_b=arguments.target_params,
        draft_b=arguments.draft_params,
        has_same_tokenizer=not arguments.other_tokenizer,
        is_same_family=not arguments.other_family,
        can_train=not arguments.no_training,
        is_text_repeated=arguments.text_repeats,
        memory_gb=arguments.memory_gb,
        target_bits=arguments.target_bits,
        draft_bits=arguments.draft_bits,
        other_gb=arguments.other_gb,
    )


def _shown(recommended: Recommendation) -> str:
    reasons = "\n".join(f"- {reason}" for reason in recommended.reasons)
    return f"Kind of draft: {recommended.kind}\n\n{reasons}"


def _rows_and_time(text: str) -> tuple[int, float]:
    rows, _, time_ms = text.partition(":")
    return int(rows), float(time_ms)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec plan",
        description="Predict by formula what speculation gains. Without an acceptance: what a "
        "guide states for ten kinds of task, at your costs. With --target-params: which kind of "
        "draft to try. To measure instead: `specdec evaluate`.",
    )
    given = parser.add_argument_group("acceptance (one of them)").add_mutually_exclusive_group()
    given.add_argument(
        "--alpha", type=float, help="chance that a draft token is accepted if those before it are"
    )
    given.add_argument(
        "--alphas", type=float, nargs="+", metavar="ALPHA", help="the same by position"
    )
    given.add_argument(
        "--rate", type=float, help="accepted ÷ drafted at k = --at-k (what the guide calls α)"
    )
    given.add_argument(
        "--tau", type=float, help="mean tokens of a round at k = --at-k, the target's included"
    )
    parser.add_argument(
        "--at-k", type=positive, default=NUM_DRAFT_TOKENS, metavar="K", help="default %(default)s"
    )
    costs = parser.add_argument_group("costs")
    costs.add_argument(
        "--cost",
        type=float,
        default=0.1,
        help="time of a draft token, in target steps (default %(default)s)",
    )
    costs.add_argument(
        "--target-ms", type=float, help="time of a plain step (default: times are in steps)"
    )
    costs.add_argument("--draft-ms", type=float, help="time of a draft token, instead of --cost")
    costs.add_argument("--overhead-ms", type=float, default=0.0, help="time of a round beside both")
    costs.add_argument(
        "--pass-ms",
        type=_rows_and_time,
        nargs="+",
        metavar="ROWS:MS",
        help="a target pass by rows, instead of --target-ms: 1:11 8:13 16:16 (`specdec bench step` "
        "measures it); straight lines in between and beyond",
    )
    costs.add_argument(
        "--batch", type=positive, nargs="+", default=[1], metavar="N", help="requests in a pass"
    )
    parser.add_argument(
        "--max-k", type=positive, default=8, metavar="K", help="largest k (default 8)"
    )
    parser.add_argument(
        "--tokens", type=positive, default=512, help="tokens of an answer (default 512)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="also draw it")
    _add_draft_options(parser.add_argument_group("kind of draft"))
    return parser


def _add_draft_options(kind: argparse._ArgumentGroup) -> None:
    kind.add_argument("--target-params", type=float, metavar="B", help="billions of parameters")
    kind.add_argument(
        "--draft-params", type=float, metavar="B", help="billions of a possible draft model"
    )
    kind.add_argument(
        "--other-tokenizer", action="store_true", help="the draft model has another one"
    )
    kind.add_argument(
        "--other-family", action="store_true", help="the draft model is of another one"
    )
    kind.add_argument("--no-training", action="store_true", help="nothing can be trained")
    kind.add_argument("--text-repeats", action="store_true", help="answers quote their prompts")
    kind.add_argument("--memory-gb", type=float, help="memory of all devices together")
    kind.add_argument("--other-gb", type=float, default=0.0, help="KV caches and the like")
    kind.add_argument("--target-bits", type=int, default=16, help="bits of a weight (default 16)")
    kind.add_argument("--draft-bits", type=int, default=16, help="bits of a weight (default 16)")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
