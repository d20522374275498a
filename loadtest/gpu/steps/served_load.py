"""`auto` against speculation off while the load grows, on a real tritonserver; GPU memory."""

from __future__ import annotations

import itertools
import math
import random
import sys

from specdec.clients import GrpcClient
from specdec.loadtest.gpu.folders import GpuFolders, home
from specdec.loadtest.gpu.serving import gpu_memory_mib, served_pair
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.loadtest.kit.arms import AUTO, OFF
from specdec.loadtest.kit.prompts import NUM_PER_TASK, salted_prompts
from specdec.loadtest.kit.streams import Pass, Streams

MAX_STREAMS = 128
MIN_GAIN = 0.97
"""Least tokens per second with `auto` ÷ without speculation that meets the goal, at each load."""


def main(argv: list[str] | None = None) -> int:
    """Measure at 1, 16, 64 and 128 streams; MISSED if `auto` is below MIN_GAIN anywhere."""
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    loads = (1, 2) if options.is_rehearsal else (1, 16, 64, MAX_STREAMS)
    # In a rehearsal, a pass with `kernels: graph` takes most of a second on two CPU cores.
    seconds, warm_up_s, num_learning = (3.0, 0.5, 1) if options.is_rehearsal else (3.0, 2.0, 24)
    num_rounds, max_tokens = (1, 8) if options.is_rehearsal else (2, 48)
    repository = GpuFolders(home()).model_repository
    order, numbers, found = random.Random(1), itertools.count(), list[Pass]()
    before_mib = gpu_memory_mib()
    with (
        served_pair(options, max_streams=MAX_STREAMS) as server,
        GrpcClient(server.grpc_url, timeout_s=60.0) as client,
    ):
        report.add("seconds_to_start", round(options.seconds - options.remaining_s, 1))
        report.add("gpu_memory_mib", {"before": before_mib, "started": gpu_memory_mib()})
        streams = Streams(client, max_tokens, warm_up_s, seconds)
        learning = salted_prompts(NUM_PER_TASK, repository, next(numbers), 0)
        streams.learn(learning, num_learning)
        # The second round begins after all loads, so a time limit leaves each measured once.
        for number, num_streams in itertools.product(range(num_rounds), loads):
            needed_s = 2 * (warm_up_s + seconds + 2.0)
            if options.remaining_s < needed_s:
                return report.finish(Verdict.TIMED_OUT, _figure(found))
            seed = next(numbers)
            for turn, arm in enumerate(order.sample((OFF, AUTO), 2)):
                prompts = salted_prompts(NUM_PER_TASK, repository, seed, turn)
                found.append(streams.run(num_streams, number, arm, prompts))
            report.add("passes", found)
        report.add("gpu_memory_mib", {"before": before_mib, "loaded": gpu_memory_mib()})
    is_met = all(_ratio(found, num_streams) > MIN_GAIN for num_streams in loads)
    is_met |= options.is_rehearsal  # So few tokens as in a rehearsal measure nothing.
    return report.finish(Verdict.PASSED if is_met else Verdict.MISSED, _figure(found))


def _ratio(found: list[Pass], num_streams: int) -> float:
    """Return tokens per second with `auto` ÷ without speculation, over all passes of a load.

    NaN, which meets no goal, if no token came without speculation.
    """

    def tokens_per_s(arm: str) -> float:
        own = [each for each in found if (each.num_streams, each.arm) == (num_streams, arm)]
        return sum(each.num_tokens for each in own) / sum(each.seconds for each in own)

    off = tokens_per_s(OFF)
    return tokens_per_s(AUTO) / off if off else math.nan


def _figure(found: list[Pass]) -> str:
    loads = sorted({each.num_streams for each in found})
    return "auto ÷ off " + ", ".join(f"{_ratio(found, n):.2f} at {n}" for n in loads)


if __name__ == "__main__":
    sys.exit(main())
