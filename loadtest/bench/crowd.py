"""`specdec bench crowd`: fairness among 48 streams, ten times the limit offered, 256 streams.

A stream's gap is the time between two of its chunks, behind the first; a round of the crowd is the
median gap. A fair server lets no stream wait for many rounds, not even while new prompts come in.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from builder.parameters import set_parameters
from clients import GenerationRequest, GrpcClient, SpecdecError
from loadtest.bench.arms import OFF, Arm
from loadtest.bench.prompting import CHECKPOINT, TokenPrompt, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.bench.repository import with_drafts
from loadtest.settings import SHIPPED_PROMPTS
from specdec.serving.launcher import TritonServer

OK = "ok"


@dataclass(frozen=True, slots=True)
class Stream:
    """What became of one request; times in seconds since the crowd started."""

    outcome: str
    num_tokens: int
    arrivals_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Crowd:
    """Streams that started at once."""

    name: str
    num_offered: int
    outcomes: dict[str, int]
    num_tokens: int
    elapsed_s: float
    median_gap_ms: float
    longest_gap_ms: float

    @property
    def longest_in_rounds(self) -> float:
        return self.longest_gap_ms / self.median_gap_ms


def main(argv: list[str]) -> int:
    """Run the three crowds; 1 if a request was lost or the limit was not kept."""
    arguments = _parser().parse_args(argv)
    prompts, _ = load_token_prompts(arguments.prompts, CHECKPOINT)
    crowds: list[Crowd] = []
    limit: int = arguments.limit
    with (
        TritonServer(arguments.model_repository, inflight_limit=limit) as server,
        GrpcClient(server.grpc_url, timeout_s=600.0) as client,
    ):
        _crowd("warm-up", client, prompts[:4], {}, arguments.max_tokens)
        for way in (OFF, "auto", "draft", "lookup"):
            asked = Arm.parse(way).fields()
            some = [prompts[n % len(prompts)] for n in range(arguments.streams)]
            name = f"{len(some)} streams, {way}"
            crowds.append(_crowd(name, client, some, asked, arguments.max_tokens))
        many = [prompts[n % len(prompts)] for n in range(10 * limit)]
        flood = _crowd(f"ten times the limit of {limit}", client, many, {}, 256)
        crowds.append(flood)
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        repository = with_drafts(arguments.model_repository, Path(scratch) / "repository", [])
        set_parameters(repository / "specdec", inflight_limit=str(arguments.most))
        with (
            TritonServer(repository, inflight_limit=arguments.most) as server,
            GrpcClient(server.grpc_url, timeout_s=600.0) as client,
        ):
            many = [prompts[n % len(prompts)] for n in range(arguments.most)]
            crowds.append(_crowd(f"{arguments.most} streams", client, many, {}, 32))
    facts = {
        "conditions": conditions(command_line("crowd", argv)),
        "crowds": crowds,
    }
    write_result(arguments.name, arguments.out, facts, _table(crowds))
    is_whole = all(set(c.outcomes) == {OK} for c in crowds if c is not flood)
    return 0 if is_whole and flood.outcomes == {OK: limit, "overloaded": 9 * limit} else 1


def _crowd(
    name: str,
    client: GrpcClient,
    prompts: Sequence[TokenPrompt],
    asked: dict[str, Any],
    max_tokens: int,
) -> Crowd:
    requests = [
        GenerationRequest(input_ids=list(p.token_ids), max_tokens=max_tokens, **asked)
        for p in prompts
    ]
    with ThreadPoolExecutor(len(requests)) as threads:
        start_s = time.perf_counter()
        streams = list(threads.map(lambda request: _stream(client, request, start_s), requests))
        elapsed_s = time.perf_counter() - start_s
    print(f"{name}: done", file=sys.stderr)
    gaps_s = [b - a for stream in streams for a, b in pairwise(stream.arrivals_s)]
    return Crowd(
        name,
        len(requests),
        dict(Counter(stream.outcome for stream in streams)),
        sum(stream.num_tokens for stream in streams),
        elapsed_s,
        statistics.median(gaps_s) * 1e3,
        max(gaps_s) * 1e3,
    )


def _stream(client: GrpcClient, request: GenerationRequest, start_s: float) -> Stream:
    found = Stream("lost", 0, ())
    try:
        for chunk in client.stream(request):
            if chunk.token_ids:
                arrivals_s = (*found.arrivals_s, time.perf_counter() - start_s)
                num_tokens = found.num_tokens + len(chunk.token_ids)
                found = replace(found, num_tokens=num_tokens, arrivals_s=arrivals_s)
            if chunk.final is not None:
                found = replace(found, outcome=OK)
    except SpecdecError as error:
        return replace(found, outcome=error.error_type)
    return found


def _table(crowds: Sequence[Crowd]) -> str:
    rows = [
        [
            crowd.name,
            ", ".join(f"{count} {outcome}" for outcome, count in sorted(crowd.outcomes.items())),
            f"{crowd.num_tokens / crowd.elapsed_s:.0f}",
            f"{crowd.median_gap_ms:.0f}",
            f"{crowd.longest_gap_ms:.0f}",
            f"{crowd.longest_in_rounds:.1f}",
        ]
        for crowd in crowds
    ]
    header = ["crowd", "outcomes", "tokens/s", "median gap, ms", "longest gap, ms", "in rounds"]
    return markdown_table(header, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench crowd", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--streams", type=int, default=48)
    parser.add_argument("--limit", type=int, default=64, help="what the repository is set to")
    parser.add_argument("--most", type=int, default=256, help="streams of the last crowd")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="crowd")
    return parser
