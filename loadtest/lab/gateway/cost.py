"""`specdec bench gateway`: what the gateway costs beside direct gRPC.

On one server, passes of streams through the gateway and over gRPC alternate, with `auto`. The two
passes of a pair ask the same prompts in the same order, salted so that no cached prefix helps. The
processor time is that of the gateway's process. A chunk is one response of the server that has
tokens; the gateway sends it as one or more events.

The time to the first token is measured apart, because the time of a long prompt would hide the
difference: with pairs of short prompts, one after another, on the idle server.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import psutil

from specdec.clients import Chunk, GenerationRequest, GrpcClient, OpenAiClient
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.arms import AUTO
from specdec.loadtest.kit.asking import ask
from specdec.loadtest.kit.options import bench_parser, finish, progress
from specdec.loadtest.kit.prompts import salted_prompts
from specdec.loadtest.kit.ratios import Ratio, Timed, ratio, resampled
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.kit.streams import Pass, Streams, add_pass_options

GRPC, GATEWAY = "gRPC", "gateway"

NUM_SHORT_TOKENS = 16
"""Tokens of a short prompt: few, so that the model's own time to the first token varies little."""


@dataclass(frozen=True, slots=True)
class ClientPass:
    """A pass of one client."""

    client: str
    """GRPC or GATEWAY."""
    streams: Pass
    gateway_cpu_s: float
    """Processor time of the gateway in the pass, its warm-up included."""
    num_chunks: int
    """Chunks of the pass, its warm-up included."""


class CountingClient:
    """A client that counts the chunks of all its answers."""

    def __init__(self, client: GrpcClient | OpenAiClient) -> None:
        self._client = client
        self.num_chunks = 0

    def stream(self, request: GenerationRequest) -> Generator[Chunk, None, None]:
        """Yield the chunks of the client's own stream."""
        chunks = self._client.stream(request)
        try:
            for chunk in chunks:
                self.num_chunks += bool(chunk.token_ids)
                yield chunk
        finally:
            chunks.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost at one number of streams."""

    num_streams: int
    grpc_tokens_per_s: float
    gateway_tokens_per_s: float
    speed: Ratio
    """Tokens per second through the gateway ÷ over gRPC."""
    cpu_ms_per_chunk: float


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The times to the first token of short prompts, in pairs, in milliseconds."""

    grpc_ms: float
    gateway_ms: float
    """Medians."""
    more_ms: Ratio
    """Median of the differences within the pairs, with its interval."""


def main(argv: list[str]) -> int:
    """Measure and report; return 0."""
    arguments = _parser().parse_args(argv)
    repository, order, numbers = arguments.model_repository, random.Random(1), itertools.count()
    found: list[ClientPass] = []
    with (
        TritonServer(repository, has_openai=True) as server,
        GrpcClient(server.grpc_url, timeout_s=120.0) as direct,
        OpenAiClient(server.openai_url, timeout_s=120.0) as through,
    ):
        gateway = _gateway_of(server)
        clients = {GRPC: CountingClient(direct), GATEWAY: CountingClient(through)}
        streams = {
            name: Streams(client, arguments.max_tokens, arguments.warm_up, arguments.seconds)
            for name, client in clients.items()
        }
        streams[GRPC].learn(
            salted_prompts(arguments.per_task, repository, next(numbers), 0), arguments.learning
        )
        first = _first_token({GRPC: direct, GATEWAY: through}, arguments.pairs, order)
        for num_streams in arguments.streams:
            for number, seed in zip(range(arguments.passes), numbers, strict=False):
                for turn, name in enumerate(order.sample((GRPC, GATEWAY), 2)):
                    prompts = salted_prompts(arguments.per_task, repository, seed, turn)
                    before_s, before = _cpu_s(gateway), clients[name].num_chunks
                    done = streams[name].run(num_streams, number, AUTO, prompts)
                    spent_s = _cpu_s(gateway) - before_s
                    found.append(ClientPass(name, done, spent_s, clients[name].num_chunks - before))
                progress(f"{num_streams} streams, {number + 1}/{arguments.passes}   ")
    print(file=sys.stderr)
    costs = [_cost(found, each) for each in arguments.streams]
    table = f"{_table(costs)}\n\n{_first_table(first)}"
    return finish(arguments, argv, {"loads": costs, "first_token": first}, table, raw=found)


def _first_token(
    clients: Mapping[str, GrpcClient | OpenAiClient], num_pairs: int, order: random.Random
) -> FirstToken:
    """Ask pairs of short prompts, in each pair once over each client, in an order that is drawn."""
    found_ms: dict[str, list[float]] = {name: [] for name in clients}
    for number in range(num_pairs):
        for turn, name in enumerate(order.sample(sorted(clients), len(clients))):
            # No two prompts begin with the same token, so no cached prefix helps.
            token = 1000 + 2 * number + turn
            prompt = [token + each for each in range(NUM_SHORT_TOKENS)]
            request = GenerationRequest(
                input_ids=prompt, max_tokens=1, temperature=0.0, ignore_eos=True
            )
            found_ms[name].append(1000 * ask(clients[name], request).first_s)
    more_ms = {
        str(pair): through_ms - direct_ms
        for pair, (direct_ms, through_ms) in enumerate(
            zip(found_ms[GRPC], found_ms[GATEWAY], strict=True)
        )
    }
    return FirstToken(
        statistics.median(found_ms[GRPC]),
        statistics.median(found_ms[GATEWAY]),
        resampled(list(more_ms), lambda drawn: statistics.median(more_ms[i] for i in drawn)),
    )


def _cost(found: Sequence[ClientPass], num_streams: int) -> Cost:
    own = [each for each in found if each.streams.num_streams == num_streams]
    passes = {name: [each for each in own if each.client == name] for name in (GRPC, GATEWAY)}
    timed = {
        name: {
            str(each.streams.number): Timed(each.streams.num_tokens, each.streams.seconds)
            for each in own_passes
        }
        for name, own_passes in passes.items()
    }
    speeds = {
        name: statistics.median(each.streams.tokens_per_s for each in own_passes)
        for name, own_passes in passes.items()
    }
    spent_s = sum(each.gateway_cpu_s for each in passes[GATEWAY])
    return Cost(
        num_streams,
        speeds[GRPC],
        speeds[GATEWAY],
        ratio(timed[GATEWAY], timed[GRPC]),
        1000 * spent_s / sum(each.num_chunks for each in passes[GATEWAY]),
    )


def _gateway_of(server: TritonServer) -> psutil.Process:
    """Return the gateway's process. Raises StopIteration if there is none."""
    supervisor = psutil.Process(server.pid).parent()
    assert supervisor is not None
    own = supervisor.children()
    return next(each for each in own if "specdec.gateway.cli" in each.cmdline())


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _table(costs: Sequence[Cost]) -> str:
    return table_of(
        {
            "streams": lambda cost: str(cost.num_streams),
            "tokens/s over gRPC": lambda cost: f"{cost.grpc_tokens_per_s:.0f}",
            "tokens/s through the gateway": lambda cost: f"{cost.gateway_tokens_per_s:.0f}",
            "gateway ÷ gRPC": lambda cost: str(cost.speed),
            "gateway's processor time, ms a chunk": lambda cost: f"{cost.cpu_ms_per_chunk:.3f}",
        },
        costs,
    )


def _first_table(first: FirstToken) -> str:
    return table_of(
        {
            "first token over gRPC, ms": lambda each: f"{each.grpc_ms:.1f}",
            "through the gateway, ms": lambda each: f"{each.gateway_ms:.1f}",
            "more through the gateway, ms": lambda each: str(each.more_ms),
        },
        [first],
    )


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("gateway", __doc__)
    add_pass_options(parser, num_streams=(1, 16), num_passes=8)
    parser.add_argument(
        "--pairs",
        type=positive,
        default=150,
        metavar="N",
        help="pairs of short prompts, for the time to the first token (default: %(default)s)",
    )
    return parser
