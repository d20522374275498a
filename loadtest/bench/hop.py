"""`specdec bench hop`: what a round costs outside the engines, with engines that cost nothing.

The models `target` and `draft` are replaced by ones that answer at once; everything else is as it
is served: requests over gRPC, the orchestrator, the calls of engine models, streamed answers. The
time of a round is the wall's, its processor time that of all server processes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from clients import GenerationRequest, GrpcClient
from loadtest.bench.arms import Arm
from loadtest.bench.processor_time import cpu_s
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.bench.repository import with_drafts
from specdec.serving.launcher import TritonServer

ARMS = (Arm(), Arm("lookup", 2), Arm("draft", 2))
ENGINES = ("target", "draft")
MODEL = '''"""Answers at once; see specdec bench hop."""

from loadtest.bench.instant_engine import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one arm at a number of streams: medians over the repeats, in microseconds."""

    arm: str
    num_streams: int
    tokens_per_round: float
    round_us: float
    """Of one stream: how long its round takes."""
    cpu_us: float
    """Processor time of all server processes for one round of one stream."""


def main(argv: list[str]) -> int:
    """Run the bench; 0 always."""
    arguments = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        repository = with_drafts(arguments.model_repository, Path(scratch) / "repository", [])
        for engine in ENGINES:
            (repository / engine / "1" / "model.py").write_text(MODEL, "utf-8")
            config = repository / engine / "config.pbtxt"
            kept = [line for line in config.read_text("utf-8").splitlines() if "param" not in line]
            config.write_text("\n".join(kept), "utf-8")
        with TritonServer(repository) as server:
            costs = _measure(server, arguments)
    facts = {
        "conditions": conditions(command_line("hop", argv)),
        "costs": costs,
    }
    rows = [
        [
            cost.arm,
            str(cost.num_streams),
            f"{cost.tokens_per_round:.2f}",
            f"{cost.round_us:.0f}",
            f"{cost.round_us / cost.num_streams:.0f}",
            f"{cost.cpu_us:.0f}",
        ]
        for cost in costs
    ]
    header = ["arm", "streams", "tokens/round", "round, µs", "÷ streams", "processor, µs/round"]
    write_result(arguments.name, arguments.out, facts, markdown_table(header, rows))
    return 0


def _measure(server: TritonServer, arguments: argparse.Namespace) -> list[Cost]:
    found: dict[tuple[Arm, int], list[Cost]] = {}
    with GrpcClient(server.grpc_url) as client:
        for repeat in range(arguments.repeats + 1):
            for num_streams in arguments.streams:
                for arm in ARMS:
                    cost = _cost(server.pid, client, arm, num_streams, arguments.max_tokens)
                    if repeat:  # the first one warms up
                        found.setdefault((arm, num_streams), []).append(cost)
    return [
        Cost(
            each[0].arm,
            each[0].num_streams,
            each[0].tokens_per_round,
            statistics.median(cost.round_us for cost in each),
            statistics.median(cost.cpu_us for cost in each),
        )
        for each in found.values()
    ]


def _cost(pid: int, client: GrpcClient, arm: Arm, num_streams: int, max_tokens: int) -> Cost:
    request = GenerationRequest(
        input_ids=list(range(1000, 1100)), max_tokens=max_tokens, **arm.fields()
    )

    def num_chunks(_: int) -> int:
        return sum(bool(chunk.token_ids) for chunk in client.stream(request))

    with ThreadPoolExecutor(num_streams) as streams:
        before_s, start_s = cpu_s(pid), time.perf_counter()
        chunks = list(streams.map(num_chunks, range(num_streams)))
        elapsed_s, used_s = time.perf_counter() - start_s, cpu_s(pid) - before_s
    rounds = sum(chunks)
    return Cost(
        str(arm),
        num_streams,
        max_tokens * num_streams / rounds,
        elapsed_s / rounds * num_streams * 1e6,
        used_s / rounds * 1e6,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench hop", description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--max-tokens", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="hop")
    return parser
