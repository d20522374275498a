"""`specdec bench step`: a target pass against the time that reading its bytes takes.

Memory limits a pass with few rows: it reads every weight, and the keys and values of the context,
once. Reading memory that no cache holds alternates with passes of 1 to 16 rows, the choice of the
next tokens included, so that all see the same machine.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.options import bench_parser, finish, progress
from specdec.loadtest.kit.prompts import CHECKPOINT
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.lab.speed.pass_times import BYTES_PER_WEIGHT, Step, bytes_read, time_passes
from specdec.torch_engine.model import LlamaModel

NUM_CACHE_TOKENS = 16384


def main(argv: list[str]) -> int:
    """Measure and report; return 0."""
    arguments = _parser().parse_args(argv)
    model = LlamaModel(
        arguments.checkpoint,
        NUM_CACHE_TOKENS,
        torch.device("cpu"),
        kernels=arguments.kernels,
        weight_dtype=arguments.weight_dtype,
    )
    steps: list[Step] = []
    speeds: list[float] = []
    for num_context in arguments.contexts:
        progress(f"context {num_context}\n")
        per_weight = BYTES_PER_WEIGHT[arguments.weight_dtype]
        num_bytes = bytes_read(model.config, num_context, per_weight)
        found, read = time_passes(model, num_context, arguments.rows, arguments.repeats, num_bytes)
        steps += found
        speeds += read
    gb_per_s = statistics.median(speeds)
    table = f"{_table(steps)}\n\nMemory was read at {gb_per_s:.1f} GB/s (median)."
    return finish(arguments, argv, {"read_gb_per_s": gb_per_s, "steps": steps}, table)


def _table(steps: Sequence[Step]) -> str:
    return table_of(
        {
            "context": lambda step: str(step.num_context),
            "rows": lambda step: str(step.num_rows),
            "pass, ms": lambda step: f"{step.pass_ms:.2f}",
            "limit, ms": lambda step: f"{step.limit_ms:.2f}",
            "pass ÷ limit": lambda step: f"{step.over_limit:.2f}",
            "÷ first": lambda step: f"{step.over_one_row:.2f}",
        },
        steps,
    )


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("step", __doc__)
    parser.add_argument(
        "--checkpoint", type=Path, default=CHECKPOINT, help="target (default: %(default)s)"
    )
    parser.add_argument(
        "--contexts",
        type=positive,
        nargs="+",
        default=[256, 2048, 4096, 8000],
        metavar="N",
        help="tokens of the context (default: 256 2048 4096 8000)",
    )
    parser.add_argument(
        "--rows",
        type=positive,
        nargs="+",
        default=[1, 2, 5, 8, 16],
        metavar="N",
        help="rows of a pass (default: 1 2 5 8 16)",
    )
    parser.add_argument(
        "--repeats", type=positive, default=40, help="passes (default: %(default)s)"
    )
    parser.add_argument("--kernels", default="auto", help="auto, native or torch")
    parser.add_argument(
        "--weight-dtype", choices=BYTES_PER_WEIGHT, default="auto", help="default: %(default)s"
    )
    return parser
