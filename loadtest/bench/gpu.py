"""`specdec bench gpu`: the target's verification step on a CUDA device against its byte limit.

Needs this repository, a CUDA build of `torch>=2.8`, `numpy`, `safetensors` and, for its errors,
`tritonclient[grpc]`; no checkpoint, no server, no download: weights are random and made on the
device, 16 GB of them for the shape `8b`.
`python -m loadtest.bench gpu` with PYTHONPATH=backends/python:. runs it without an installation.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from loadtest.bench.gpu_shapes import SHAPES, random_decoder
from loadtest.bench.gpu_times import (
    NUM_CONTEXT_TOKENS,
    LeapTime,
    StepTime,
    bandwidth_of,
    leap_times,
    load_cost,
    step_times,
)
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)


@torch.inference_mode()
def main(argv: list[str]) -> int:
    """Measure, print and write."""
    arguments = _parser().parse_args(argv)
    device, dtype = torch.device(arguments.device), torch.bfloat16
    bandwidth = bandwidth_of(device, arguments.gigabytes)
    print(f"read bandwidth {bandwidth / 1e9:.0f} GB/s", flush=True)
    steps: list[StepTime] = []
    loads: dict[str, dict[str, float]] = {}
    leaps: list[LeapTime] = []
    for name in arguments.shape:
        parts = random_decoder(SHAPES[name], device, dtype)
        steps += step_times(name, parts, device, dtype, bandwidth, arguments.calls)
        if name in {"draft", "tiny"}:
            leaps += leap_times(name, parts, device, dtype, arguments.calls)
        loads[name] = load_cost(name, parts, device, dtype, arguments.seq_len)
        del parts
    facts: dict[str, Any] = {
        "conditions": conditions(command_line("gpu", argv)),
        "device": _name(device),
        "dtype": str(dtype),
        "read_bandwidth_gb_per_s": round(bandwidth / 1e9, 1),
        "num_context_tokens": NUM_CONTEXT_TOKENS,
        "preparation": loads,
        "steps": [asdict(each) for each in steps],
        "leaps": [asdict(each) for each in leaps],
    }
    write_result(arguments.name, arguments.out, facts, _report(facts, steps, leaps))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec bench gpu",
        description="Times a target's pass over 1 + k rows for 1 to 16 sequences, with CUDA graphs "
        "and without, against reading its weights and context once; and a draft's k tokens in one "
        "go against step by step. Weights are random.",
    )
    parser.add_argument("--device", default="cuda", help="on cpu nothing is captured: for tests")
    parser.add_argument(
        "--shape",
        nargs="+",
        choices=SHAPES,
        default=["default", "draft", "8b"],
        help="default, draft: the default pair's; 8b: Llama 3.1 8B's",
    )
    parser.add_argument(
        "--gigabytes", type=float, default=4.0, help="read to measure the bandwidth"
    )
    parser.add_argument("--calls", type=int, default=20, help="in each of seven timed batches")
    parser.add_argument(
        "--seq-len", type=int, default=8192, help="max_seq_len of the preparation that is timed"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="gpu", help="of the result files")
    return parser


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, nothing captured"


def _report(facts: dict[str, Any], steps: list[StepTime], leaps: list[LeapTime]) -> str:
    head = (
        f"{facts['device']}, {facts['dtype']}, {NUM_CONTEXT_TOKENS} tokens of context each; "
        f"measured read bandwidth {facts['read_bandwidth_gb_per_s']:.0f} GB/s. Medians of wall "
        "time, the host's read of the tokens included."
    )
    loads = [
        f"{name}: prepared for default limits in {cost['seconds']} s, {cost['mebibytes']:.0f} MiB."
        for name, cost in facts["preparation"].items()
    ]
    parts = [head, " ".join(loads), _step_table(steps)]
    if leaps:
        parts.append(_leap_table(leaps))
    return "\n\n".join(parts)


def _step_table(steps: list[StepTime]) -> str:
    single = {(each.shape, each.num_sequences): each for each in steps if each.num_rows == 1}
    header = [
        *("shape", "sequences", "rows each", "byte limit, µs", "launched, µs", "graph, µs"),
        *("graph ÷ limit", "graph ÷ its 1 row"),
    ]
    rows = [
        [
            *(each.shape, str(each.num_sequences), str(each.num_rows)),
            *(f"{us:.0f}" for us in (each.limit_us, each.called_us, each.graph_us)),
            f"{each.graph_us / each.limit_us:.2f}",
            f"{each.graph_us / single[each.shape, each.num_sequences].graph_us:.2f}",
        ]
        for each in steps
    ]
    return markdown_table(header, rows)


def _leap_table(leaps: list[LeapTime]) -> str:
    header = ["sequences", "draft tokens", "step by step, µs", "in one go, µs", "ratio"]
    rows = [
        [
            *(str(each.num_sequences), str(each.num_tokens)),
            *(f"{us:.0f}" for us in (each.steps_us, each.leap_us)),
            f"{each.steps_us / each.leap_us:.2f}",
        ]
        for each in leaps
    ]
    return markdown_table(header, rows)
