"""`specdec bench overlap`: drafting while the target verifies, replayed and run.

Draft and target get a core and a thread each, so that neither takes from the other; two front doors
on the same engines draft one behind the other and ahead, in turns. Recorded without overlap: what a
step takes at some numbers of guesses, and from the deepest of them where the draft is right. From
half of the prompts the replay says what the other half takes, and then what overlap would gain.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from builder.parameters import set_parameters
from clients import Final, GenerationRequest, GrpcClient
from loadtest.bench.overlap_tables import (
    comparison_figures,
    comparison_table,
    recorded_figures,
    recorded_table,
    what_if_figures,
    what_if_table,
)
from loadtest.bench.overlapping import Costs, Trace
from loadtest.bench.prompting import CHECKPOINT, TokenPrompt, load_token_prompts
from loadtest.bench.reporting import RESULTS, command_line, conditions, write_result
from loadtest.bench.repository import add_front_door, with_drafts
from loadtest.bench.separating import separate
from loadtest.settings import SHIPPED_PROMPTS
from specdec.serving.launcher import TritonServer

DRAFT, TARGET = "draft", "target"
SERIAL, AHEAD, OFF = "serial", "ahead", "off"
DOORS = {SERIAL: "specdec", AHEAD: "specdec_ahead"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; times in seconds from sending the request."""

    prompt_id: str
    arm: str
    num_guesses: int
    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    num_first: int
    """Tokens of the first response."""
    first_s: float
    last_s: float
    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int
    times: dict[str, float]
    """The response's `round_times`."""


def main(argv: list[str]) -> int:
    """Measure and report; 1 if an answer differs from the target's own."""
    arguments = _parser().parse_args(argv)
    prompts, _ = load_token_prompts(arguments.prompts, CHECKPOINT)
    prompts = prompts[:: arguments.every]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        repository = _repository(arguments, directory / "models")
        server = stack.enter_context(TritonServer(repository))
        cores = separate(server.pid, DRAFT, TARGET)
        asker = _Asker(stack, server.grpc_url, arguments.max_tokens)
        k, deepest = arguments.num_guesses, arguments.deepest
        for arm in (OFF, SERIAL, AHEAD, AHEAD):  # Warm-up, on text that no prompt contains.
            asker.ask(TokenPrompt("warm-up", "", tuple(range(1000, 1040))), arm, k)
        found: list[Answer] = []
        for turn in range(arguments.repeats):
            for number, prompt in enumerate(prompts):
                plan = [(OFF, k), (SERIAL, k), (AHEAD, k)]
                if turn == 0:
                    plan += [(SERIAL, depth) for depth in sorted({1, k + 1, deepest} - {k})]
                # Each arm is first as often as last: the machine's speed drifts.
                order = plan if (turn + number) % 2 == 0 else reversed(plan)
                found += [asker.ask(prompt, *each) for each in order]
                print(f"\rturn {turn + 1}: {number + 1}/{len(prompts)}", end="", file=sys.stderr)
        print(file=sys.stderr)
    recorded = [each for each in found if each.arm == SERIAL]
    fitted = {each.prompt_id for each in prompts[::2]}
    costs = _costs([each for each in recorded if each.prompt_id in fitted])
    traces = {
        each.prompt_id: Trace.of_sources(each.sources, deepest, arguments.max_tokens)
        for each in recorded
        if each.num_guesses == deepest
    }
    others = [e for e in recorded if e.num_guesses == k and e.prompt_id not in fitted]
    differing = _differing(found)
    own = [each for each in found if each.num_guesses == k]
    serial = recorded_figures(costs, others, traces, k)
    speeds = comparison_figures(costs, traces, own, k)
    what_if = what_if_figures(list(traces.values()))
    facts = {
        "conditions": conditions(command_line("overlap", argv)),
        "max_tokens": arguments.max_tokens,
        "cores": {"draft": cores[0], "target": cores[1]},
        "costs": costs,
        "recorded": serial,
        "speeds": speeds,
        "num_answers": len(found),
        "num_equal": len(found) - len(differing),
        "what_if": what_if,
    }
    parts = (
        recorded_table(costs, serial),
        comparison_table(speeds),
        f"Equal to the answer without speculation: {len(found) - len(differing)} of {len(found)}.",
        what_if_table(what_if),
    )
    table = "\n\n".join(parts)
    write_result(arguments.name, arguments.out, facts, table, raw=found)
    for each in differing:
        print(f"BROKEN: {each.prompt_id}, {each.arm}: another text", file=sys.stderr)
    return 1 if differing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench overlap", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--every", type=int, default=1, help="take every n-th prompt")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument(
        "--twin",
        action="store_true",
        help="draft with the target's own checkpoint: right almost always, and as large",
    )
    parser.add_argument("--num-guesses", type=int, default=2, metavar="K", help="per round")
    parser.add_argument(
        "--deepest", type=int, default=16, help="guesses by which it is recorded what is right"
    )
    parser.add_argument(
        "--target-kernels",
        choices=("auto", "native", "torch"),
        default="auto",
        help="torch makes the target about three times as slow, as one that is larger",
    )
    parser.add_argument("--repeats", type=int, default=2, help="turns through the prompts")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="overlap", help="of the result files")
    return parser


def _repository(arguments: argparse.Namespace, directory: Path) -> Path:
    """A copy with both front doors, each engine on one thread."""
    repository = with_drafts(arguments.model_repository, directory, ())
    set_parameters(repository / TARGET, num_threads="1", kernels=arguments.target_kernels)
    set_parameters(repository / DRAFT, num_threads="1")
    if arguments.twin:
        set_parameters(repository / DRAFT, checkpoint_dir="../../target/1/checkpoint")
    # A machine that stalls for a second must not end a draft: the guesses are what is recorded.
    set_parameters(repository / "specdec", draft_timeout_ms="30000")
    add_front_door(repository, DOORS[AHEAD], draft_ahead="true")
    return repository


class _Asker:
    """Asks one prompt of one arm."""

    def __init__(self, stack: ExitStack, url: str, max_tokens: int) -> None:
        """Connections are closed with `stack`."""
        self._clients = {
            arm: stack.enter_context(GrpcClient(url, model_name=door))
            for arm, door in DOORS.items()
        }
        self._max_tokens = max_tokens

    def ask(self, prompt: TokenPrompt, arm: str, num_guesses: int) -> Answer:
        request = GenerationRequest(
            input_ids=list(prompt.token_ids),
            max_tokens=self._max_tokens,
            drafter=None if arm == OFF else DRAFT,
            num_draft_tokens=0 if arm == OFF else num_guesses,
            return_perf_metrics=True,
        )
        start_s = time.perf_counter()
        tokens: tuple[int, ...] = ()
        sources: tuple[int, ...] = ()
        num_first, first_s, last_s = 0, 0.0, 0.0
        final: Final | None = None
        for chunk in self._clients[SERIAL if arm == OFF else arm].stream(request):
            last_s = time.perf_counter() - start_s
            if chunk.token_ids and not num_first:
                num_first, first_s = len(chunk.token_ids), last_s
            tokens, sources = tokens + chunk.token_ids, sources + chunk.sources
            final = chunk.final or final
        known: Any = (final and final.speculative_decoding) or {}
        return Answer(
            prompt_id=prompt.prompt_id,
            arm=arm,
            num_guesses=num_guesses,
            tokens=tokens,
            sources=sources,
            num_first=num_first,
            first_s=first_s,
            last_s=last_s,
            num_steps=known["num_spec_steps"],
            num_drafted=known["num_draft_tokens"],
            num_accepted=known["num_accepted_draft_tokens"],
            times=dict(known["round_times"]),
        )


def _costs(recorded: Sequence[Answer]) -> Costs:
    """Mean times of a round at each number of guesses, of what is left of it at any of them."""
    drafting, verifying = [], []
    for depth in sorted({each.num_guesses for each in recorded}):
        own = [each for each in recorded if each.num_guesses == depth]
        count = sum(each.times["num_rounds"] for each in own)
        num_drafts = sum(e.num_drafted for e in own) / sum(e.num_steps for e in own)
        drafting.append((num_drafts, sum(each.times["draft_s"] for each in own) / count))
        verifying.append((num_drafts, sum(each.times["target_s"] for each in own) / count))
    times = {name: sum(each.times[name] for each in recorded) for name in recorded[0].times}
    rest_s = times["total_s"] - times["draft_s"] - times["target_s"]
    return Costs(tuple(drafting), tuple(verifying), rest_s / times["num_rounds"])


def _differing(answers: Sequence[Answer]) -> list[Answer]:
    own = {each.prompt_id: each.tokens for each in answers if each.arm == OFF}
    return [each for each in answers if each.tokens != own[each.prompt_id]]
