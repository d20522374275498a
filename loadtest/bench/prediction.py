"""`specdec bench prediction`: what a right, a half right and a wrong prediction come to.

The right prediction is the target's own answer; the half right one goes over to another prompt's
answer in its middle; the wrong one is another prompt's answer. The text must not change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from clients import GenerationRequest, GenerationResult, GrpcClient
from loadtest.bench.prompting import CHECKPOINT, TokenPrompt, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.settings import SHIPPED_PROMPTS
from specdec.serving.launcher import TritonServer

KINDS = ("right", "half right", "wrong")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer that was predicted."""

    prompt_id: str
    prediction: str
    num_tokens: int
    num_accepted: int
    num_rejected: int
    num_rounds: int
    is_equal: bool
    """To the answer without speculation."""


@dataclass(frozen=True, slots=True)
class KindFigures:
    """Sums over the answers to one kind of prediction."""

    prediction: str
    num_answers: int
    num_equal: int
    num_tokens: int
    num_accepted: int
    num_rejected: int
    num_rounds: int


def main(argv: list[str]) -> int:
    """Run and report; 1 if a prediction changed an answer."""
    arguments = _parser().parse_args(argv)
    prompts, _ = load_token_prompts(arguments.prompts, CHECKPOINT)
    with ExitStack() as stack:
        server = stack.enter_context(TritonServer(arguments.model_repository))
        client = stack.enter_context(GrpcClient(server.grpc_url))
        pool = stack.enter_context(ThreadPoolExecutor(arguments.concurrency))

        def ask(prompt: TokenPrompt, prediction: str | None) -> GenerationResult:
            return client.generate(
                GenerationRequest(
                    input_ids=list(prompt.token_ids),
                    max_tokens=arguments.max_tokens,
                    num_draft_tokens=0 if prediction is None else None,
                    drafter=None if prediction is None else "prediction",
                    prediction=prediction,
                    return_perf_metrics=True,
                )
            )

        answers = list(pool.map(lambda prompt: ask(prompt, None), prompts))
        found: list[Outcome] = []
        for kind in KINDS:
            predictions = _predictions(kind, [answer.text for answer in answers])
            results = pool.map(ask, prompts, predictions)
            for prompt, answer, result in zip(prompts, answers, results, strict=True):
                found.append(_outcome(prompt, kind, answer, result))
    kinds = [figures(found, kind) for kind in KINDS]
    facts = {"conditions": conditions(command_line("prediction", argv)), "kinds": kinds}
    write_result(arguments.name, arguments.out, facts, _table(kinds), raw=found)
    changed = [each for each in found if not each.is_equal]
    for each in changed:
        print(f"BROKEN: {each.prompt_id}, {each.prediction}: another answer", file=sys.stderr)
    return 1 if changed else 0


def _predictions(kind: str, texts: Sequence[str]) -> list[str]:
    others = [*texts[1:], texts[0]]
    if kind == "right":
        return list(texts)
    if kind == "wrong":
        return others
    pairs = zip(texts, others, strict=True)
    return [own[: len(own) // 2] + other[len(other) // 2 :] for own, other in pairs]


def _outcome(
    prompt: TokenPrompt, kind: str, answer: GenerationResult, result: GenerationResult
) -> Outcome:
    final = result.final
    known = final.speculative_decoding or {}
    return Outcome(
        prompt_id=prompt.prompt_id,
        prediction=kind,
        num_tokens=len(result.token_ids),
        num_accepted=final.accepted_prediction_tokens or 0,
        num_rejected=final.rejected_prediction_tokens or 0,
        num_rounds=known["round_times"]["num_rounds"] + 1,
        is_equal=result.token_ids == answer.token_ids,
    )


def figures(found: Sequence[Outcome], kind: str) -> KindFigures:
    """Sum up the answers to one kind of prediction."""
    own = [each for each in found if each.prediction == kind]
    return KindFigures(
        kind,
        len(own),
        sum(each.is_equal for each in own),
        sum(each.num_tokens for each in own),
        sum(each.num_accepted for each in own),
        sum(each.num_rejected for each in own),
        sum(each.num_rounds for each in own),
    )


def _table(kinds: Sequence[KindFigures]) -> str:
    header = ["prediction", "tokens", "accepted", "rejected", "tokens / round", "equal answers"]
    rows = [
        [
            each.prediction,
            str(each.num_tokens),
            str(each.num_accepted),
            str(each.num_rejected),
            f"{each.num_tokens / each.num_rounds:.2f}",
            f"{each.num_equal} of {each.num_answers}",
        ]
        for each in kinds
    ]
    return markdown_table(header, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench prediction", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=4, help="prompts under way at once")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="prediction", help="of the result files")
    return parser
