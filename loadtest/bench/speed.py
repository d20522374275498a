"""`specdec bench speed`: one stream, speculation on, off, and the target called directly.

No arm may profit from what another has computed: in every pass each prompt is asked by one arm
only, in random order, and the server is started anew before the arms change places. After three
passes every arm has answered every prompt.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clients import Final, GenerationRequest, GrpcClient
from loadtest.bench.arms import Arm, Case
from loadtest.bench.direct import DirectTarget
from loadtest.bench.prompting import CHECKPOINT, TokenPrompt, load_token_prompts
from loadtest.bench.ratios import Timed, rate, ratio
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

TIME_FIELDS = ("total_s", "draft_s", "target_s", "draft_engine_s", "target_engine_s")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One answer; times in seconds from sending the request."""

    prompt_id: str
    column: str
    arm: str
    num_tokens: int
    first_s: float
    last_s: float
    statistics: dict[str, Any] | None
    """The response's `speculative_decoding`, where it was asked for."""


def main(argv: list[str]) -> int:
    """Measure and report; 1 if speculation was slower than the target alone."""
    arguments = _parser().parse_args(argv)
    prompts, end_id = load_token_prompts(arguments.prompts, CHECKPOINT)
    prompts = prompts[:: arguments.every]
    arms = ("direct", "off", *arguments.drafters)
    found: list[Measurement] = []
    for number in range(len(arms)):
        with (
            TritonServer(arguments.model_repository) as server,
            GrpcClient(server.grpc_url) as client,
        ):
            target = DirectTarget(server.grpc_url)
            asker = _Asker(client, target, arguments, end_id)
            for _ in range(2):
                for arm in arms:  # Warm-up, on text that no prompt contains.
                    asker.ask(TokenPrompt("warm-up", "", tuple(range(1000, 1040))), arm)
            order = random.Random(arguments.seed + number)
            plan = [(p, arms[(i + number) % len(arms)]) for i, p in enumerate(prompts)]
            for place, (prompt, arm) in enumerate(order.sample(plan, len(plan)), 1):
                found.append(asker.ask(prompt, arm))
                text = f"\rpass {number + 1}/{len(arms)}: {place}/{len(plan)}"
                print(text, end="", file=sys.stderr)
            target.close()
    print(file=sys.stderr)
    facts = {
        "conditions": conditions(command_line("speed", argv)),
        "max_tokens": arguments.max_tokens,
        "measurements": [asdict(each) for each in found],
    }
    table = _speed_table(found, arms) + "\n\n" + _acceptance_table(found, arguments.drafters)
    if arguments.times:
        table += "\n\n" + _times_table(found, arguments.drafters)
    write_result(arguments.name, arguments.out, facts, table)
    best_alone = max(_rate(_of(found, "direct")), _rate(_of(found, "off")))
    return 0 if _rate(_of(found, arguments.drafters[0])) > best_alone else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench speed", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--drafters",
        nargs="+",
        default=["auto"],
        metavar="DRAFTER[/VERIFICATION]",
        help="arms with speculation; the first is the one judged (default: auto)",
    )
    parser.add_argument("--case", default="0", metavar="T[:TOP_P]", help="how tokens are drawn")
    parser.add_argument("--every", type=int, default=1, help="take every n-th prompt")
    parser.add_argument(
        "--times", action="store_true", help="also report where the rounds' time goes"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of prompts")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="speed", help="of the result files")
    return parser


class _Asker:
    """Asks one prompt of one arm."""

    def __init__(
        self,
        client: GrpcClient,
        target: DirectTarget,
        arguments: argparse.Namespace,
        end_id: int,
    ) -> None:
        """`arguments`: max_tokens, case, seed, times."""
        self._client = client
        self._target = target
        self._max_tokens: int = arguments.max_tokens
        self._case = Case.parse(arguments.case)
        self._seed: int = arguments.seed
        self._measure_times: bool = arguments.times
        self._end_id = end_id

    def ask(self, prompt: TokenPrompt, arm: str) -> Measurement:
        if arm == "direct":
            ids, case = list(prompt.token_ids), self._case
            params = SamplingParams(case.temperature, top_p=case.top_p, seed=self._seed)
            sampling = Sampling(params, len(ids))
            answer = self._target.generate(ids, self._max_tokens, self._end_id, sampling)
            count, first_s, last_s = len(answer.tokens), answer.first_s, answer.last_s
            final = None
        else:
            count, first_s, last_s, final = self._stream(prompt, arm)
        known = final.speculative_decoding if final else None
        statistics_ = dict(known) if known else None
        return Measurement(
            prompt.prompt_id, prompt.column, arm, count, first_s, last_s, statistics_
        )

    def _stream(self, prompt: TokenPrompt, arm: str) -> tuple[int, float, float, Final | None]:
        request = GenerationRequest(
            input_ids=list(prompt.token_ids),
            max_tokens=self._max_tokens,
            return_perf_metrics=self._measure_times or None,
            **self._case.fields(self._seed),
            **Arm.parse(arm).fields(),
        )
        start_s = time.perf_counter()
        first_s = last_s = 0.0
        count, final = 0, None
        for chunk in self._client.stream(request):
            last_s = time.perf_counter() - start_s
            if chunk.token_ids and not first_s:
                first_s = last_s
            count += len(chunk.token_ids)
            final = chunk.final or final
        return count, first_s, last_s, final


def _of(found: list[Measurement], arm: str, column: str | None = None) -> list[Measurement]:
    return [each for each in found if each.arm == arm and column in {None, each.column}]


def _rate(measured: list[Measurement]) -> float:
    return rate(_timed(each) for each in measured)


def _timed(measured: Measurement) -> Timed:
    return Timed(measured.num_tokens, measured.last_s)


def _ratio(found: list[Measurement], arm: str, base: str, column: str | None) -> str:
    over = {each.prompt_id: _timed(each) for each in _of(found, arm, column)}
    under = {each.prompt_id: _timed(each) for each in _of(found, base, column)}
    return str(ratio(over, under))


def _speed_table(found: list[Measurement], arms: tuple[str, ...]) -> str:
    columns: list[str | None] = [*dict.fromkeys(each.column for each in found), None]
    drafted = [arm for arm in arms if arm not in {"direct", "off"}]
    rows = [
        [column or "all", *(f"{_rate(_of(found, arm, column)):.1f}" for arm in arms)]
        for column in columns
    ]
    first_ms = (statistics.median(m.first_s for m in _of(found, arm)) * 1000 for arm in arms)
    rows.append(["median TTFT, ms", *(f"{value:.0f}" for value in first_ms)])
    ratios = [
        [f"{arm} ÷ {base}", *(_ratio(found, arm, base, column) for column in columns)]
        for arm in drafted
        for base in arms[:2]
    ]
    header = ["ratio, 95 % interval", *(column or "all" for column in columns)]
    return markdown_table(["tokens/s", *arms], rows) + "\n\n" + markdown_table(header, ratios)


def _acceptance_table(found: list[Measurement], drafters: list[str]) -> str:
    columns: list[str | None] = [*dict.fromkeys(each.column for each in found), None]
    rows = []
    for arm in drafters:
        for column in columns:
            known = [each.statistics for each in _of(found, arm, column) if each.statistics]
            if not known:
                continue
            totals: defaultdict[str, int] = defaultdict(int)
            for each in known:
                for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"):
                    totals[name] += each[name]
            rounds = sum(each["round_times"]["num_rounds"] + 1 for each in known)
            tokens = sum(each.num_tokens for each in _of(found, arm, column))
            steps, drafted = totals["num_spec_steps"], totals["num_draft_tokens"]
            accepted = totals["num_accepted_draft_tokens"]
            rows.append(
                [
                    f"{arm}, {column or 'all'}",
                    f"{tokens / rounds:.2f}",
                    f"{1 + accepted / steps:.2f}" if steps else "–",
                    f"{accepted / drafted:.3f}" if drafted else "–",
                    f"{steps / rounds:.2f}",
                ]
            )
    header = ["acceptance", "tokens/round", "τ of drafted rounds", "accepted/drafted", "drafted"]
    return markdown_table(header, rows) if rows else ""


def _times_table(found: list[Measurement], drafters: list[str]) -> str:
    header = ["ms per round", "rounds", "all", "draft engine", "target engine", "BLS", "rest"]
    header.append("not engine")
    rows = []
    for arm in drafters:
        known = [each.statistics["round_times"] for each in _of(found, arm) if each.statistics]
        count = sum(each["num_rounds"] for each in known)
        total, draft, target, draft_own, target_own = (
            sum(each[name] for each in known) / count * 1000 for name in TIME_FIELDS
        )
        # A drafter without an engine waits for nobody; its time is the orchestrator's.
        engines = draft_own + target_own
        bls = (target - target_own) + (max(0.0, draft - draft_own) if draft_own else 0.0)
        values = [total, draft_own, target_own, bls, total - engines - bls]
        share = (total - engines) / total
        rows.append([arm, str(count), *(f"{value:.2f}" for value in values), f"{share:.1%}"])
    return markdown_table(header, rows)
