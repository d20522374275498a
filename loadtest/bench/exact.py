"""`specdec bench exact`: on = off = target, token for token, through a live server."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from clients import GenerationRequest, GrpcClient
from loadtest.bench.direct import DirectAnswer, DirectTarget
from loadtest.bench.prompting import CHECKPOINT, TokenPrompt, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.settings import SHIPPED_PROMPTS
from specdec.acceptance.sampling import SamplingParams
from specdec.engines.sampling_inputs import Sampling
from specdec.serving.launcher import TritonServer


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to ask `specdec`; no drafter is speculation off."""

    drafter: str | None = None
    num_draft_tokens: int | None = None
    """None: what the server is configured for."""

    def __str__(self) -> str:
        if self.drafter is None:
            return "off"
        return self.drafter + (f", k = {self.num_draft_tokens}" if self.num_draft_tokens else "")


@dataclass(frozen=True, slots=True)
class Case:
    """How tokens are drawn: greedily, or at a temperature, perhaps within a nucleus."""

    temperature: float
    top_p: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Case:
        temperature, _, top_p = text.partition(":")
        return cls(float(temperature), float(top_p or 1.0))

    def __str__(self) -> str:
        if self.temperature == 0.0:
            return "greedy"
        nucleus = f", top_p {self.top_p:g}" if self.top_p < 1.0 else ""
        return f"T = {self.temperature:g}{nucleus}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt answered by one arm, against the target called directly."""

    prompt_id: str
    column: str
    case: str
    arm: str
    num_tokens: int
    first_difference: int | None
    """Position of the first unequal token; None if the answers are equal."""
    equal_log_probs: bool
    """Bit for bit, of every token."""
    num_drafted: int
    num_accepted: int


class Examiner:
    """Asks target and `specdec` the same and compares; thread-safe."""

    def __init__(self, stack: ExitStack, url: str, arguments: argparse.Namespace) -> None:
        self._client = stack.enter_context(GrpcClient(url))
        self._targets: SimpleQueue[DirectTarget] = SimpleQueue()
        self._arguments = arguments
        for _ in range(arguments.concurrency):
            target = DirectTarget(url)
            stack.callback(target.close)
            self._targets.put(target)

    def compare(self, prompt: TokenPrompt, case: Case, arms: Sequence[Arm]) -> list[Comparison]:
        wanted = self.direct(prompt, case, self._arguments.seed)
        return [self._compare(prompt, case, arm, wanted) for arm in arms]

    def direct(self, prompt: TokenPrompt, case: Case, seed: int) -> DirectAnswer:
        """What the target alone says."""
        params = SamplingParams(temperature=case.temperature, top_p=case.top_p, seed=seed)
        target = self._targets.get()
        try:
            return target.generate(
                list(prompt.token_ids),
                self._arguments.max_tokens,
                self._arguments.end_id,
                Sampling(params, len(prompt.token_ids), wants_log_probs=True),
            )
        finally:
            self._targets.put(target)

    def _compare(
        self, prompt: TokenPrompt, case: Case, arm: Arm, wanted: DirectAnswer
    ) -> Comparison:
        result = self._client.generate(
            GenerationRequest(
                input_ids=list(prompt.token_ids),
                max_tokens=self._arguments.max_tokens,
                temperature=case.temperature,
                top_p=case.top_p,
                seed=self._arguments.seed,
                num_draft_tokens=0 if arm.drafter is None else arm.num_draft_tokens,
                drafter=arm.drafter,
                return_log_probs=True,
                return_perf_metrics=True,
            )
        )
        return Comparison(
            prompt_id=prompt.prompt_id,
            column=prompt.column,
            case=str(case),
            arm=str(arm),
            num_tokens=len(wanted.tokens),
            first_difference=_first_difference(result.token_ids, wanted.tokens),
            equal_log_probs=result.log_probs == wanted.log_probs,
            num_drafted=result.final.total_draft_tokens or 0,
            num_accepted=result.final.total_accepted_draft_tokens or 0,
        )


def main(argv: list[str]) -> int:
    """Run the proof; 1 if any answer differs or an arm never speculated."""
    arguments = _parser().parse_args(argv)
    prompts: list[TokenPrompt] = []
    for path in arguments.prompts:
        found, arguments.end_id = load_token_prompts(path, CHECKPOINT)
        prompts += found
    prompts = prompts[: arguments.num_prompts]
    cases = [Case.parse(text) for text in arguments.cases]
    drafters = itertools.product(arguments.drafters, arguments.k or [None])
    arms = [Arm(), *(Arm(*each) for each in drafters)]
    with ExitStack() as stack:
        url = arguments.grpc_url
        if url is None:
            url = stack.enter_context(TritonServer(arguments.model_repository)).grpc_url
        examiner = Examiner(stack, url, arguments)
        comparisons, num_changed = _run(examiner, prompts, cases, arms, arguments)
    rows = [
        _row(case, arm, [e for e in comparisons if (e.case, e.arm) == (str(case), str(arm))])
        for case in cases
        for arm in arms
    ]
    header = ["draw", "arm", "equal to target", "log-probs bit-equal", "tokens"]
    header += ["drafted", "accepted", "accepted / drafted"]
    facts = {
        "conditions": conditions(command_line("exact", argv)),
        "max_tokens": arguments.max_tokens,
        "concurrency": arguments.concurrency,
        "texts_changed_by_another_seed": num_changed,
        "comparisons": [asdict(each) for each in comparisons],
    }
    table = markdown_table(header, rows)
    for name, (changed, total) in num_changed.items():
        table += f"\n\n{name}: another seed changes {changed} of {total} texts."
    write_result(arguments.name, arguments.out, facts, table)
    return _verdict(comparisons, arms)


def _run(
    examiner: Examiner,
    prompts: Sequence[TokenPrompt],
    cases: Sequence[Case],
    arms: Sequence[Arm],
    arguments: argparse.Namespace,
) -> tuple[list[Comparison], dict[str, tuple[int, int]]]:
    """All comparisons, and for each sampled case how many texts another seed changes."""
    found: list[Comparison] = []
    num_changed: dict[str, tuple[int, int]] = {}
    with ThreadPoolExecutor(arguments.concurrency) as pool:
        for case in cases:
            if case.temperature > 0.0:
                texts = [
                    list(pool.map(lambda p, s=seed: examiner.direct(p, case, s).tokens, prompts))  # noqa: B023
                    for seed in (arguments.seed, arguments.seed + 1)
                ]
                changed = sum(one != other for one, other in zip(*texts, strict=True))
                num_changed[str(case)] = (changed, len(prompts))
            for results in pool.map(lambda p: examiner.compare(p, case, arms), prompts):  # noqa: B023
                found += results
                bad = sum(each.first_difference is not None for each in found)
                done = len(found) // len(arms)
                text = f"\r{done}/{len(prompts) * len(cases)} prompts, {bad} answers differ"
                print(text, end="", file=sys.stderr)
    print(file=sys.stderr)
    return found, num_changed


def _verdict(comparisons: Sequence[Comparison], arms: Sequence[Arm]) -> int:
    broken = 0
    for arm in arms[1:]:
        if not sum(each.num_accepted for each in comparisons if each.arm == str(arm)):
            print(f"BROKEN: {arm} never had a token accepted", file=sys.stderr)
            broken += 1
    for each in comparisons:
        if each.first_difference is not None or not each.equal_log_probs:
            place = each.first_difference
            where = "in its log-probabilities" if place is None else f"at token {place}"
            text = f"BROKEN: prompt {each.prompt_id}, {each.case}, {each.arm}: differs {where}"
            print(text, file=sys.stderr)
            broken += 1
    return 1 if broken else 0


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
    parser.add_argument("--k", type=int, nargs="+", help="draft lengths (default: configured)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=4, help="prompts under way at once")
    parser.add_argument("--grpc-url", help="a running server (default: one is started)")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="exact", help="of the result files")
    return parser


def _first_difference(own: Sequence[int], wanted: Sequence[int]) -> int | None:
    pairs = zip(own, wanted, strict=False)
    different = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    if different is None and len(own) != len(wanted):
        return min(len(own), len(wanted))
    return different


def _row(case: Case, arm: Arm, found: Sequence[Comparison]) -> list[str]:
    drafted = sum(each.num_drafted for each in found)
    accepted = sum(each.num_accepted for each in found)
    return [
        str(case),
        str(arm),
        f"{sum(each.first_difference is None for each in found)} of {len(found)}",
        f"{sum(each.equal_log_probs for each in found)} of {len(found)}",
        str(sum(each.num_tokens for each in found)),
        str(drafted),
        str(accepted),
        f"{accepted / drafted:.3f}" if drafted else "–",
    ]
