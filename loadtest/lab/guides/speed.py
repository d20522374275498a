"""`specdec bench guides_speed`: what guides cost, and what drafts give in answers that follow them.

All arms take turns on one server, greedily. It has two more orchestrators: one whose mode `auto`
leaves the drafter `grammar` out, and one whose draft model does not know the guide. The arm without
a guide generates as many tokens as the answer with a guide has, so that both do the same work but
for the masks. Guides are compiled before they are measured. Each arm has a tenant of its own, whose
answers and cached prefixes no other arm can use.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.clients import GenerationRequest, GrpcClient
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit import options, speed_tables
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import AUTO, ORCHESTRATOR, Arm
from specdec.loadtest.kit.asking import measure
from specdec.loadtest.kit.prompts import TokenPrompt, as_tokens
from specdec.loadtest.kit.ratios import Ratio, Timed, rate, ratio
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.lab.guides.tasks import GuideTask, call_tasks, json_tasks, sql_tasks
from specdec.loadtest.lab.guides.variants import (
    UNMASKED_DRAFT,
    WITHOUT_GRAMMAR,
    with_variants,
)
from specdec.loadtest.load.prompts import Prompt

SEED = 11


@dataclass(frozen=True, slots=True)
class GuideArm:
    """A way to ask for an answer."""

    name: str
    drafting: Arm
    has_guide: bool = True


PLAIN = GuideArm("off, no guide", Arm(), has_guide=False)
OFF = GuideArm("off", Arm())
AUTO_ALONE = GuideArm("auto without grammar", Arm(AUTO, model=WITHOUT_GRAMMAR))
AUTO_ALL = GuideArm("auto", Arm(AUTO))
DRAFT = GuideArm("draft", Arm("draft", 4))
DRAFT_UNMASKED = GuideArm("draft without the guide", Arm("draft", 4, model=UNMASKED_DRAFT))
ARMS = (PLAIN, OFF, AUTO_ALONE, AUTO_ALL, DRAFT, DRAFT_UNMASKED)
LOADED = (PLAIN, OFF, AUTO_ALONE, AUTO_ALL)
"""The arms that are also measured with many streams."""
DRAFTED = (AUTO_ALONE, AUTO_ALL, DRAFT, DRAFT_UNMASKED)
PAIRS = (
    *((OFF, PLAIN), (AUTO_ALONE, OFF), (AUTO_ALL, OFF), (AUTO_ALL, AUTO_ALONE)),
    (DRAFT, DRAFT_UNMASKED),
)


@dataclass(frozen=True, slots=True)
class GuidedQuestion:
    """A task whose prompt is in tokens."""

    task: GuideTask
    prompt: TokenPrompt
    num_tokens: int
    """Tokens of its answer with the guide, without speculation."""


@dataclass(frozen=True, slots=True)
class TaskGain:
    """The gain of one arm over another with one stream, in one kind of task."""

    task: str
    """The kind, or `speed_tables.ALL`."""
    gain: speed_tables.Gain


@dataclass(frozen=True, slots=True)
class ManyStreams:
    """The speed of an arm with many streams."""

    arm: str
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class ManyStreamsGain:
    """The speed of one arm ÷ another's with many streams, over passes."""

    arm: str
    base: str
    speed: Ratio


class Arms:
    """Connections to one server, to ask a task in an arm."""

    def __init__(self, grpc_url: str, max_tokens: int, stack: ExitStack) -> None:
        self._max_tokens = max_tokens
        self._clients = {
            model: stack.enter_context(GrpcClient(grpc_url, model_name=model, timeout_s=600.0))
            for model in (ORCHESTRATOR, WITHOUT_GRAMMAR, UNMASKED_DRAFT)
        }

    def question(self, task: GuideTask, prompt: TokenPrompt) -> GuidedQuestion:
        """Compile the guide and find the length of the answer."""
        for model, client in self._clients.items():
            request = self._request(task, prompt, OFF, f"compiling {model}")
            answer = client.generate(request)
        return GuidedQuestion(task, prompt, len(answer.token_ids))

    def measure(self, question: GuidedQuestion, arm: GuideArm, salt: str = "") -> Measurement:
        """Return the measured answer of an arm."""
        task = question.task
        request = self._request(
            task, question.prompt, arm, f"{arm.name}{salt}", question.num_tokens
        )
        about = task.name, task.group, arm.name
        return measure(self._clients[arm.drafting.model], request, about)

    def _request(
        self, task: GuideTask, prompt: TokenPrompt, arm: GuideArm, tenant: str, length: int = 0
    ) -> GenerationRequest:
        fields: dict[str, Any] = {"max_tokens": length, "ignore_eos": True}
        if arm.has_guide:
            guide = {"guided_decoding_guide_type": task.kind, "guided_decoding_guide": task.guide}
            fields = {"max_tokens": self._max_tokens, **guide}
        return GenerationRequest(
            input_ids=list(prompt.token_ids),
            temperature=0.0,
            task=task.group,
            tenant=tenant,
            return_perf_metrics=True,
            **fields,
            **arm.drafting.fields(),
        )


def main(argv: list[str]) -> int:
    """Measure and report; return 0."""
    arguments = _parser().parse_args(argv)
    order = random.Random(SEED)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specdec.")))
        repository = with_variants(arguments.model_repository, scratch)
        server = stack.enter_context(TritonServer(repository))
        arms = Arms(server.grpc_url, arguments.max_tokens, stack)
        tasks = list(_tasks(arguments.tasks))
        found = list(_one_stream(arms, tasks, arguments.model_repository, order))
        timed = _many_streams(arms, tasks, arguments, order)
    print(file=sys.stderr)
    facts, table = _report(found, timed, arguments.streams)
    return options.finish(arguments, argv, facts, table, raw=found)


def _tasks(per_group: int) -> Iterator[GuideTask]:
    for group in (json_tasks, call_tasks, sql_tasks):
        yield from group(per_group, SEED)


def _prompts(
    tasks: Sequence[GuideTask], repository: Path, salt: str
) -> Iterator[tuple[GuideTask, TokenPrompt]]:
    given = (Prompt(task.name, task.group, (task.question,)) for task in tasks)
    return zip(tasks, as_tokens(given, repository, salt), strict=True)


def _one_stream(
    arms: Arms, tasks: Sequence[GuideTask], repository: Path, order: random.Random
) -> Iterator[Measurement]:
    """Yield the answer of each arm to each task, one after another."""
    in_turn = _prompts(order.sample(tasks, len(tasks)), repository, "one")
    for number, (task, prompt) in enumerate(in_turn, start=1):
        question = arms.question(task, prompt)
        for arm in order.sample(ARMS, len(ARMS)):
            yield arms.measure(question, arm)
        options.progress(f"1 stream: {number}/{len(tasks)}")


def _many_streams(
    arms: Arms, tasks: Sequence[GuideTask], arguments: argparse.Namespace, order: random.Random
) -> dict[GuideArm, dict[str, Timed]]:
    """Return tokens and seconds of each arm, by pass; a pass has the tasks of one kind."""
    found: dict[GuideArm, dict[str, Timed]] = {arm: {} for arm in LOADED}
    for number in range(arguments.passes):
        for group in dict.fromkeys(task.group for task in tasks):
            own = [task for task in tasks if task.group == group]
            prompts = _prompts(own, arguments.model_repository, f"many{number}")
            with ThreadPoolExecutor(arguments.streams) as pool:
                questions = list(pool.map(lambda each: arms.question(*each), prompts))
            for arm in order.sample(LOADED, len(LOADED)):
                timed = _pass(arms, questions, arm, arguments.streams, f" {number}")
                found[arm][f"{group} {number}"] = timed
        options.progress(f"{arguments.streams} streams: pass {number + 1}/{arguments.passes}")
    return found


def _pass(
    arms: Arms, questions: Sequence[GuidedQuestion], arm: GuideArm, num_streams: int, salt: str
) -> Timed:
    start_s = time.perf_counter()
    with ThreadPoolExecutor(num_streams) as pool:
        found = list(pool.map(lambda each: arms.measure(each, arm, salt), questions))
    return Timed(sum(each.num_tokens for each in found), time.perf_counter() - start_s)


def _report(
    found: list[Measurement],
    timed: Mapping[GuideArm, Mapping[str, Timed]],
    num_streams: int,
) -> tuple[dict[str, Any], str]:
    rates = speed_tables.rates(found, [arm.name for arm in ARMS])
    gains = [gain for arm, base in PAIRS for gain in _gains(found, arm, base)]
    acceptance = speed_tables.acceptances(found, {arm.name: arm.drafting for arm in DRAFTED})
    many = [ManyStreams(arm.name, rate(timed[arm].values())) for arm in LOADED]
    many_gains = [
        ManyStreamsGain(arm.name, base.name, ratio(timed[arm], timed[base]))
        for arm, base in PAIRS
        if arm in LOADED
    ]
    facts = {
        "rates": rates,
        "gains": gains,
        "acceptance": acceptance,
        "num_streams": num_streams,
        "many_streams": many,
        "many_streams_gains": many_gains,
    }
    parts = [
        speed_tables.rates_table(rates),
        table_of(
            {
                "1 stream, 95 % interval": lambda each: f"{each.gain.arm} ÷ {each.gain.base}",
                "task": lambda each: each.task,
                "whole answers": lambda each: str(each.gain.whole),
                "after the first": lambda each: str(each.gain.after_first),
            },
            gains,
        ),
        speed_tables.acceptance_table(acceptance),
        table_of(
            {
                f"{num_streams} streams": lambda each: each.arm,
                "tokens/s": lambda each: f"{each.tokens_per_s:.0f}",
            },
            many,
        ),
        table_of(
            {
                f"{num_streams} streams, 95 % interval": lambda each: f"{each.arm} ÷ {each.base}",
                "tokens/s": lambda each: str(each.speed),
            },
            many_gains,
        ),
    ]
    return facts, "\n\n".join(parts)


def _gains(found: list[Measurement], arm: GuideArm, base: GuideArm) -> Iterator[TaskGain]:
    """Yield the gain of an arm for each kind of task, and for all together."""
    columns = [*dict.fromkeys(each.column for each in found), speed_tables.ALL]
    for column in columns:
        own = [each for each in found if column in (each.column, speed_tables.ALL)]
        for gain in speed_tables.gains(own, [arm.name], [base.name]):
            yield TaskGain(column, gain)


def _parser() -> argparse.ArgumentParser:
    parser = options.bench_parser("guides_speed", __doc__)
    parser.add_argument(
        "--tasks", type=positive, default=24, metavar="N", help="of each kind (default: 24)"
    )
    parser.add_argument("--streams", type=positive, default=16, help="at once (default: 16)")
    parser.add_argument("--passes", type=positive, default=3, help="with them (default: 3)")
    options.add_max_tokens(parser, 256)
    return parser
