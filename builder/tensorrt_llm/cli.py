"""`specdec build compile PAIR`: compile a pair's engines with this machine's TensorRT-LLM."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdec.builder.checking.options import add_pair_options, checked_pair
from specdec.builder.description import TENSORRTLLM, TORCH
from specdec.builder.errors import BuildError
from specdec.builder.tensorrt_llm.compiling import compile_steps, describe_steps
from specdec.builder.tensorrt_llm.installation import described_toolkit, find_toolkit
from specdec.builder.tensorrt_llm.plan import plan_steps


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `compile` to the parser."""
    add_pair_options(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for checkpoints, engines and logs; a later run skips the steps that are done "
        "there (default: engines/PAIR)",
    )
    parser.add_argument(
        "--calib-dataset",
        default="cnn_dailymail",
        metavar="NAME",
        help="data set that FP8, AWQ and SmoothQuant measure activations on: a name or a folder "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands and calls, do nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compile the pair, or print how with --dry-run; return 0.

    Raises BuildError if the pair has no engines to compile, TensorRT-LLM is missing, or a step
    fails.
    """
    pair = checked_pair(arguments)
    if pair.engine != TENSORRTLLM:
        reader = "PyTorch reads" if pair.engine == TORCH else "the engine reads"
        raise BuildError(
            f"{pair.name} has {pair.engine} engines, for which there is nothing to compile: "
            f"{reader} the checkpoints; continue with `specdec build render`"
        )
    work = (arguments.output or Path("engines") / pair.name).resolve()
    if arguments.dry_run:
        toolkit = described_toolkit(pair.runtime.version)
        print(describe_steps(plan_steps(pair, work, toolkit, arguments.calib_dataset), work))
        return 0
    toolkit = find_toolkit(pair.runtime)
    for directory in compile_steps(plan_steps(pair, work, toolkit, arguments.calib_dataset), work):
        print(directory)
    print(f"next: specdec build render {arguments.pair} --engines {work / 'engines'} --output DIR")
    return 0
