"""`specdec bench exact`: on = off = target, token for token, through a live server."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from clients import GenerationRequest, GrpcClient
from loadtest.bench.direct import DirectTarget
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

ARMS = ("off", "lookup", "draft", "auto")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt answered by one arm, against the target called directly."""

    prompt_id: str
    column: str
    arm: str
    num_tokens: int
    first_difference: int | None
    """Position of the first unequal token; None if the answers are equal."""
    num_drafted: int
    num_accepted: int


def main(argv: list[str]) -> int:
    """Run the proof; 1 if any answer differs or an arm never speculated."""
    arguments = _parser().parse_args(argv)
    prompts, end_id = load_token_prompts(arguments.prompts, CHECKPOINT)
    with ExitStack() as stack:
        url = arguments.grpc_url
        if url is None:
            url = stack.enter_context(TritonServer(arguments.model_repository)).grpc_url
        client = stack.enter_context(GrpcClient(url))
        targets: SimpleQueue[DirectTarget] = SimpleQueue()
        for _ in range(arguments.concurrency):
            target = DirectTarget(url)
            stack.callback(target.close)
            targets.put(target)

        def compare(prompt: TokenPrompt) -> list[Comparison]:
            target = targets.get()
            try:
                wanted = target.generate(list(prompt.token_ids), arguments.max_tokens, end_id)
            finally:
                targets.put(target)
            return [
                _compare(client, prompt, arm, wanted.tokens, arguments.max_tokens) for arm in ARMS
            ]

        found: list[Comparison] = []
        with ThreadPoolExecutor(arguments.concurrency) as pool:
            for number, results in enumerate(pool.map(compare, prompts), 1):
                found += results
                bad = sum(each.first_difference is not None for each in found)
                print(f"\r{number}/{len(prompts)} prompts, {bad} differ", end="", file=sys.stderr)
    print(file=sys.stderr)
    rows = [_row(arm, [each for each in found if each.arm == arm]) for arm in ARMS]
    header = ["arm", "equal to target", "tokens", "drafted", "accepted", "accepted / drafted"]
    facts = {
        "conditions": conditions(command_line("exact", argv)),
        "max_tokens": arguments.max_tokens,
        "concurrency": arguments.concurrency,
        "comparisons": [asdict(each) for each in found],
    }
    write_result(arguments.name, arguments.out, facts, markdown_table(header, rows))
    idle = [
        arm for arm in ARMS[1:] if not sum(each.num_accepted for each in found if each.arm == arm)
    ]
    for arm in idle:
        print(f"BROKEN: {arm} never had a token accepted", file=sys.stderr)
    differing = [each for each in found if each.first_difference is not None]
    for each in differing:
        print(
            f"BROKEN: prompt {each.prompt_id}, {each.arm}: differs at token "
            f"{each.first_difference}",
            file=sys.stderr,
        )
    return 1 if differing or idle else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec bench exact",
        description="Asks the model `target` directly for each prompt, then `specdec` without "
        "speculation and with each drafter, and compares token ids.",
    )
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--concurrency", type=int, default=4, help="prompts under way at once")
    parser.add_argument("--grpc-url", help="a running server (default: one is started)")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="exact", help="of the result files")
    return parser


def _compare(
    client: GrpcClient, prompt: TokenPrompt, arm: str, wanted: tuple[int, ...], max_tokens: int
) -> Comparison:
    result = client.generate(
        GenerationRequest(
            input_ids=list(prompt.token_ids),
            max_tokens=max_tokens,
            num_draft_tokens=0 if arm == "off" else None,
            drafter=None if arm == "off" else arm,
            return_perf_metrics=True,
        )
    )
    pairs = zip(result.token_ids, wanted, strict=False)
    different = next((i for i, (own, theirs) in enumerate(pairs) if own != theirs), None)
    if different is None and len(result.token_ids) != len(wanted):
        different = min(len(result.token_ids), len(wanted))
    return Comparison(
        prompt_id=prompt.prompt_id,
        column=prompt.column,
        arm=arm,
        num_tokens=len(wanted),
        first_difference=different,
        num_drafted=result.final.total_draft_tokens or 0,
        num_accepted=result.final.total_accepted_draft_tokens or 0,
    )


def _row(arm: str, found: list[Comparison]) -> list[str]:
    drafted = sum(each.num_drafted for each in found)
    accepted = sum(each.num_accepted for each in found)
    return [
        arm,
        f"{sum(each.first_difference is None for each in found)} of {len(found)}",
        str(sum(each.num_tokens for each in found)),
        str(drafted),
        str(accepted),
        f"{accepted / drafted:.3f}" if drafted else "–",
    ]
