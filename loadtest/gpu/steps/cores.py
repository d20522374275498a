"""The CPU engine with a growing number of threads, without the GPU, to see how it scales."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specdec.builder.config_file import set_parameters
from specdec.clients import GrpcClient
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.gpu.folders import GpuFolders, home
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.loadtest.kit.arms import AUTO, OFF
from specdec.loadtest.kit.prompts import NUM_PER_TASK, salted_prompts
from specdec.loadtest.kit.repository import with_drafts
from specdec.loadtest.kit.streams import Streams


def main(argv: list[str] | None = None) -> int:
    """Measure one and eight streams at each number of threads, with speculation off and `auto`."""
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    wanted = (1, 2) if options.is_rehearsal else (2, 4, 8, 16)
    counts = tuple(each for each in wanted if each <= (os.cpu_count() or 1))
    rows: list[dict[str, Any]] = []
    longest_s = 0.0
    for num_threads in counts:
        before_s = options.remaining_s
        if before_s < longest_s:
            return report.finish(Verdict.TIMED_OUT, _figure(rows))
        rows += _measure(options, num_threads)
        report.add("rows", rows)
        longest_s = max(longest_s, before_s - options.remaining_s)
    return report.finish(Verdict.PASSED, _figure(rows))


def _measure(options: StepOptions, num_threads: int) -> list[dict[str, Any]]:
    """Serve with `num_threads` threads an engine; return one row for each number of streams."""
    seconds, warm_up_s, num_learning = (1.0, 0.5, 1) if options.is_rehearsal else (3.0, 1.0, 12)
    loads = (1,) if options.is_rehearsal else (1, 8)
    repository = GpuFolders(home()).model_repository
    numbers = itertools.count()
    rows = []
    with TemporaryDirectory(prefix="specdec-gpu-") as scratch:
        copy = with_drafts(repository, Path(scratch))
        for engine in ("target", "draft"):
            set_parameters(
                copy / engine, device="cpu", kernels="native", num_threads=str(num_threads)
            )
        with TritonServer(copy) as server, GrpcClient(server.grpc_url, timeout_s=60.0) as client:
            streams = Streams(client, 48, warm_up_s, seconds)
            learning = salted_prompts(NUM_PER_TASK, repository, next(numbers), 0)
            streams.learn(learning, num_learning)
            for num_streams in loads:
                seed = next(numbers)
                off, auto = (
                    streams.run(
                        num_streams, 0, arm, salted_prompts(NUM_PER_TASK, repository, seed, turn)
                    )
                    for turn, arm in enumerate((OFF, AUTO))
                )
                rows.append(
                    {
                        "num_threads": num_threads,
                        "num_streams": num_streams,
                        "off_tokens_per_s": off.tokens_per_s,
                        "auto_tokens_per_s": auto.tokens_per_s,
                    }
                )
    return rows


def _figure(rows: list[dict[str, Any]]) -> str:
    shown = [
        f"{row['num_threads']} threads {row['off_tokens_per_s']:.0f} off, "
        f"{row['auto_tokens_per_s']:.0f} auto"
        for row in rows
        if row["num_streams"] == 1
    ]
    return "tokens/s of one stream: " + "; ".join(shown)


if __name__ == "__main__":
    sys.exit(main())
