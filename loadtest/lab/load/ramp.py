"""`specdec bench ramp`: speculation on and off on one server while the load grows.

With each number of streams, passes with `auto` and without speculation alternate. The two passes of
a pair ask the same prompts in the same order, salted so that no cached prefix helps. Tokens that
arrive after a pass's warm-up count. The server first learns from some requests, one at a time.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys

from specdec.clients import GrpcClient
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.arms import AUTO, OFF
from specdec.loadtest.kit.options import bench_parser, finish, progress
from specdec.loadtest.kit.prompts import salted_prompts
from specdec.loadtest.kit.streams import Pass, Streams, add_pass_options
from specdec.loadtest.lab.load.ramp_report import figures, table


def main(argv: list[str]) -> int:
    """Measure and report; return 0."""
    arguments = _parser().parse_args(argv)
    repository = arguments.model_repository
    order, numbers = random.Random(arguments.seed), itertools.count()
    found: list[Pass] = []
    with TritonServer(repository) as server, GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        streams = Streams(client, arguments.max_tokens, arguments.warm_up, arguments.seconds)
        learning = salted_prompts(arguments.per_task, repository, next(numbers), 0)
        streams.learn(learning, arguments.learning)
        for num_streams in arguments.streams:
            for number, seed in zip(range(arguments.passes), numbers, strict=False):
                for turn, arm in enumerate(order.sample((OFF, AUTO), 2)):
                    prompts = salted_prompts(arguments.per_task, repository, seed, turn)
                    found.append(streams.run(num_streams, number, arm, prompts))
                progress(f"{num_streams} streams, {number + 1}/{arguments.passes}   ")
    print(file=sys.stderr)
    loads = figures(found)
    return finish(arguments, argv, {"loads": loads}, table(loads), raw=found)


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("ramp", __doc__)
    add_pass_options(parser, num_streams=(1, 2, 4, 8, 16, 48), num_passes=6)
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of arms")
    return parser
