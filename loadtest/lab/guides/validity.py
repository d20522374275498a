"""`specdec bench guides`: do answers follow their guides, and do drafts change nothing in them?

Each question is asked without speculation and with each drafter, greedily and at a temperature,
over KServe and through the gateway. An answer that has ended must be valid, as another library
says, and all answers must have the tokens of the one without speculation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.clients import GenerationRequest, GrpcClient, OpenAiClient
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit import options
from specdec.loadtest.kit.arms import OFF, Arm
from specdec.loadtest.kit.asking import find_at_once
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.lab.guides.tasks import (
    GuideTask,
    call_tasks,
    json_tasks,
    regex_tasks,
    sql_tasks,
)

DRAFTERS = (
    *("grammar", "lookup", "suffix", "draft", "eagle3", "eagle3_tree", "tree", "vote", "auto"),
)
KSERVE, GATEWAY = "KServe", "gateway"
SEED = 7


@dataclass(frozen=True, slots=True)
class GuidedAnswer:
    """One answer, and what was found out about it."""

    task: str
    group: str
    case: str
    arm: str
    way: str
    has_ended: bool
    """Whether the answer is complete."""
    is_valid: bool
    is_equal: bool
    """Whether it has the tokens of the answer without speculation."""

    @property
    def is_right(self) -> bool:
        return self.is_equal and (self.is_valid or not self.has_ended)

    def __str__(self) -> str:
        fault = "other tokens" if not self.is_equal else "does not follow its guide"
        return f"{self.task}, {self.case}, {self.arm}, {self.way}: {fault}"


def main(argv: list[str]) -> int:
    """Ask and check; return 1 if an answer is wrong."""
    arguments = _parser().parse_args(argv)
    arms = [Arm.parse(OFF), *(Arm(name) for name in arguments.drafters)]
    tasks = list(_tasks(arguments.tasks))
    with (
        TritonServer(arguments.model_repository, has_openai=True) as server,
        GrpcClient(server.grpc_url, timeout_s=600.0) as kserve,
        OpenAiClient(server.openai_url, timeout_s=600.0) as gateway,
    ):
        ways: dict[str, GrpcClient | OpenAiClient] = {KSERVE: kserve, GATEWAY: gateway}

        def ask(task: GuideTask) -> list[GuidedAnswer]:
            return list(_answers(ways, task, arms, arguments))

        found = find_at_once(ask, tasks, arguments.concurrency)
    rows = _rows(found)
    wrong = [each for each in found if not each.is_right]
    facts = {"num_tasks": len(tasks), "arms": [str(each) for each in arms], "rows": rows}
    return options.finish(
        arguments, argv, facts, _table(rows), faults=[str(each) for each in wrong]
    )


def _tasks(count: int) -> Iterator[GuideTask]:
    """Yield `count` tasks: half of them JSON, a quarter function calls, the rest SQL and texts."""
    yield from json_tasks(count // 2, SEED)
    yield from call_tasks(count // 4, SEED)
    yield from sql_tasks(count // 8, SEED)
    yield from regex_tasks(count - count // 2 - count // 4 - count // 8, SEED)


def _answers(
    ways: dict[str, GrpcClient | OpenAiClient],
    task: GuideTask,
    arms: Sequence[Arm],
    arguments: argparse.Namespace,
) -> Iterator[GuidedAnswer]:
    for case in arguments.cases:
        expected: tuple[int, ...] | None = None
        for arm in arms:
            for way, client in ways.items():
                request = GenerationRequest(
                    messages=[{"role": "user", "content": task.question}],
                    max_tokens=arguments.max_tokens,
                    guided_decoding_guide_type=task.kind,
                    guided_decoding_guide=task.guide,
                    **arm.fields(),
                    **case.fields(SEED),
                )
                result = client.generate(request)
                tokens = tuple(result.token_ids)
                expected = tokens if expected is None else expected
                yield GuidedAnswer(
                    task.name,
                    task.group,
                    str(case),
                    str(arm),
                    way,
                    result.end.finish_reason == "stop",
                    task.is_valid(result.text),
                    tokens == expected,
                )


def _rows(found: Sequence[GuidedAnswer]) -> list[dict[str, Any]]:
    """Return the numbers of answers by kind of task, case and way."""
    keys = dict.fromkeys((each.group, each.case, each.way) for each in found)
    rows = []
    for group, case, way in keys:
        own = [each for each in found if (each.group, each.case, each.way) == (group, case, way)]
        ended = [each for each in own if each.has_ended]
        rows.append(
            {
                "group": group,
                "case": case,
                "way": way,
                "num_answers": len(own),
                "num_ended": len(ended),
                "num_valid": sum(each.is_valid for each in ended),
                "num_equal": sum(each.is_equal for each in own),
            }
        )
    return rows


def _table(rows: Sequence[dict[str, Any]]) -> str:
    return table_of(
        {
            "task": lambda row: row["group"],
            "drawn": lambda row: row["case"],
            "way": lambda row: row["way"],
            "answers": lambda row: str(row["num_answers"]),
            "ended": lambda row: str(row["num_ended"]),
            "of these valid": lambda row: str(row["num_valid"]),
            "equal to off": lambda row: str(row["num_equal"]),
        },
        rows,
    )


def _parser() -> argparse.ArgumentParser:
    parser = options.bench_parser("guides", __doc__)
    parser.add_argument("--tasks", type=positive, default=200, metavar="N", help="default: 200")
    parser.add_argument("--drafters", nargs="+", default=DRAFTERS, help=f"default: {DRAFTERS}")
    parser.add_argument("--concurrency", type=positive, default=8, help="tasks asked at once")
    options.add_cases(parser, ("0", "0.8"))
    options.add_max_tokens(parser, 512)
    return parser
