"""`specdec bench memory`: KV cache used against needed, and what 10,000 requests leave behind.

The requests are short and of every kind: with each drafter, sampled, refused, hung up in
mid-answer. A process that leaks grows with their number.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from clients import GenerationRequest, GrpcClient, SpecdecError
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
from specdec.torch_engine.native import NativeDecoder

KINDS: tuple[dict[str, Any], ...] = (
    {"drafter": "none"},
    {"drafter": "auto"},
    {"drafter": "lookup"},
    {"drafter": "draft"},
    {"drafter": "suffix"},
    {"drafter": "tree"},
    {"drafter": "auto", "temperature": 0.8, "return_log_probs": True},
    {"drafter": "no such drafter"},
)
LEAVES_EVERY = 10
"""One request in so many hangs up behind its first chunk."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident megabytes of the server and of its models' processes."""

    num_requests: int
    resident_mb: dict[str, float]

    @property
    def total_mb(self) -> float:
        return sum(self.resident_mb.values())


def main(argv: list[str]) -> int:
    """Run the bench; 0 always."""
    arguments = _parser().parse_args(argv)
    prompts, end_id = load_token_prompts(arguments.prompts, CHECKPOINT)
    short = [prompt for prompt in prompts if len(prompt.token_ids) < 200]
    with TritonServer(arguments.model_repository) as server:
        ratios = _kv_ratios(server, prompts[: arguments.num_kv_prompts], end_id)
        taken = [Memory(0, _resident_mb(server.pid))]
        with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
            size = -(-arguments.requests // arguments.parts)
            for start in range(0, arguments.requests, size):
                share = range(start, min(start + size, arguments.requests))
                with ThreadPoolExecutor(arguments.streams) as threads:
                    list(threads.map(lambda n: _ask(client, short, n), share))
                taken.append(Memory(share.stop, _resident_mb(server.pid)))
                each = ", ".join(f"{name} {mb:.0f}" for name, mb in taken[-1].resident_mb.items())
                print(f"{share.stop} requests, MB: {each}", file=sys.stderr)
    overall = sum(used for used, _ in ratios) / sum(needed for _, needed in ratios)
    facts = {
        "conditions": conditions(command_line("memory", argv)),
        "kv_used_by_needed": overall,
        "num_kv_prompts": len(ratios),
        "memory": taken,
    }
    names = list(taken[0].resident_mb)
    rows = [
        [str(m.num_requests), *(f"{m.resident_mb.get(n, 0):.0f}" for n in names)] for m in taken
    ]
    table = markdown_table(["requests", *(f"{name}, MB" for name in names)], rows)
    text = f"KV cache used ÷ needed, {len(ratios)} prompts with their answers: {overall:.3f}."
    write_result(arguments.name, arguments.out, facts, f"{table}\n\n{text}", raw=ratios)
    return 0


def _kv_ratios(
    server: TritonServer, prompts: Sequence[TokenPrompt], end_id: int
) -> list[tuple[int, int]]:
    """Tokens that the blocks of each answer have room for, and tokens that are in them."""
    target = DirectTarget(server.grpc_url)
    found = []
    for prompt in prompts:
        answer = target.generate(list(prompt.token_ids), 64, end_id)
        # The last token is said, but nothing has read it.
        needed = len(prompt.token_ids) + len(answer.tokens) - 1
        size = NativeDecoder.block_size
        found.append((-(-needed // size) * size, needed))
    target.close()
    return found


def _ask(client: GrpcClient, prompts: Sequence[TokenPrompt], number: int) -> None:
    draw = random.Random(number)
    prompt = draw.choice(prompts)
    request = GenerationRequest(
        input_ids=list(prompt.token_ids), max_tokens=draw.randrange(1, 9), **KINDS[number % 8]
    )
    try:
        chunks = client.stream(request)
        wanted = 1 if number % LEAVES_EVERY == 0 else None
        for _ in itertools.islice(chunks, wanted):
            pass
        chunks.close()
    except SpecdecError as error:
        if error.error_type != "invalid_request":
            raise


def _resident_mb(pid: int) -> dict[str, float]:
    server = psutil.Process(pid)
    found = {server.name(): server.memory_info().rss / 1e6}
    for stub in server.children(recursive=True):
        instance = stub.cmdline()[-2]  # A stub's last arguments: the model's instance, and a mode.
        found[instance] = stub.memory_info().rss / 1e6
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench memory", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--parts", type=int, default=10, help="memory is taken so often")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--num-kv-prompts", type=int, default=24)
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="memory")
    return parser
