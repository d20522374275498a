"""The report of all checks, as text for a terminal and as data for scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from specdec.builder.checking.check import Report
from specdec.builder.checking.findings import ERROR, SEVERITIES, WARNING
from specdec.builder.description import (
    LLMAPI,
    LLMAPI_DRAFTS,
    TENSORRTLLM,
    VLLM,
    EngineDescription,
    PairDescription,
)
from specdec.builder.memory import DeviceMemory
from specdec.builder.tables import table
from specdec.builder.units import gib

WIDTH = 110
"""Columns of the text."""
PARTS = ("weights", "kv_cache", "activations", "buffers", "context")
"""Parts of an engine's memory: fields of `EngineMemory`."""


def as_text(report: Report) -> str:
    """Return the whole report as text; its last line says whether the pair can be built."""
    parts = [_title(report.pair), _shapes(report.pair)]
    if report.plan is not None:
        parts += [_memory(report), _shares(report) if report.plan.fits else _remedies(report)]
    parts += [_findings(report), _verdict(report)]
    return "\n\n".join(part for part in parts if part)


def as_data(report: Report) -> dict[str, Any]:
    """Return the report as data for JSON, with memory in bytes."""
    devices = [] if report.plan is None else report.plan.devices
    return {
        "pair": report.pair.name,
        "buildable": report.is_buildable,
        "engines": {
            each.name: {
                "model": each.model,
                "num_parameters": each.shape.total_parameters,
                "devices": list(each.placement.devices),
            }
            for each in report.pair.engines
        },
        "memory": [
            {
                "device": device.name,
                "capacity": device.capacity,
                "needed": device.needed,
                "engines": {
                    each.engine: {part: getattr(each, part) for part in PARTS}
                    for each in device.engines
                },
            }
            for device in devices
        ],
        "kv_cache": {
            each.engine: {"fraction": each.fraction, "max_tokens": each.max_tokens}
            for each in report.shares
        },
        "remedies": [
            {"what": each.what, "saved": each.saved, "fits": each.fits} for each in report.remedies
        ],
        "findings": [asdict(each) for each in report.findings],
    }


def _title(pair: PairDescription) -> str:
    drafts = " and ".join(draft.model for draft in pair.drafts)
    own = pair.self_speculation
    drafters = ", ".join(pair.speculation.drafters)
    proposers = [f"draft {drafts}"] if drafts else []
    proposers += [own.mode] if own is not None else []
    proposers += [f"drafters {drafters}"] if drafters else []
    where = "on CPU" if pair.gpu is None else f"on {pair.gpu.name}"
    is_tensorrt = pair.engine in (TENSORRTLLM, LLMAPI)
    release = f" of TensorRT-LLM {pair.runtime.version}" if is_tensorrt else ""
    return _wrapped(
        f"{pair.name}: {pair.target.model} with {'; '.join(proposers) or 'no drafter'}; "
        f"{pair.engine} engines{release}, {where}"
    )


def _shapes(pair: PairDescription) -> str:
    heading = "engine|model|parameters|target ÷|precision|layers|hidden|heads/KV|tokens|rows"
    rows = [_shape_row(pair, engine) for engine in pair.engines]
    return table([(heading + "|context|devices").split("|"), *rows])


def _shape_row(pair: PairDescription, engine: EngineDescription) -> tuple[str, ...]:
    shape, precision = engine.shape, engine.precision
    ratio = pair.target.shape.total_parameters / shape.total_parameters
    stored = precision.dtype if precision.quantization == "none" else precision.quantization
    cache = "" if precision.kv_cache == "auto" else f", {precision.kv_cache} KV"
    devices = ";".join(",".join(map(str, each)) for each in engine.placement.instances)
    return (
        engine.name,
        engine.model,
        f"{shape.total_parameters:,}",
        "" if engine is pair.target else f"{ratio:.1f}",
        stored + cache,
        str(shape.num_layers),
        str(shape.hidden_size),
        f"{shape.num_heads}/{shape.num_kv_heads}",
        f"{shape.num_tokens:,}",
        f"{shape.vocab_size:,}",
        f"{shape.max_position_embeddings:,}",
        devices or "CPU",
    )


def _memory(report: Report) -> str:
    assert report.plan is not None
    pair = report.pair
    rows: list[Sequence[str]] = [
        ("GiB", "engine", "weights", "KV cache", "activations", "buffers", "context", "sum")
    ]
    for names, device in _alike(report.plan.devices):
        for i, each in enumerate(device.engines):
            sizes = [getattr(each, part) for part in PARTS]
            name = names if i == 0 else ""
            rows.append((name, each.engine, *map(gib, sizes), gib(each.total)))
        rows.append(("", _verdict_of(device), "", "", "", "", "", gib(device.needed)))
    load, limits = pair.load, pair.limits
    title = (
        f"Memory for {load.num_sequences} sequences of {load.sequence_len:,} tokens at once, in "
        f"passes of at most {limits.max_num_tokens:,} rows; weights and KV cache follow from the "
        "shapes, the rest is estimated:"
    )
    return "\n".join([_wrapped(title), table(rows)])


def _verdict_of(device: DeviceMemory) -> str:
    if device.capacity is None or device.spare is None:
        return "total"
    state = f"{gib(device.spare)} free" if device.fits else f"{gib(-device.spare)} TOO MUCH"
    return f"of {gib(device.capacity)}: {state}"


def _alike(devices: Sequence[DeviceMemory]) -> Iterator[tuple[str, DeviceMemory]]:
    """Yield a device of each group with the same engines, and a name with all their numbers."""
    groups: dict[tuple[object, ...], list[DeviceMemory]] = {}
    for device in devices:
        groups.setdefault(device.engines, []).append(device)
    for group in groups.values():
        numbers = ",".join(str(each.device) for each in group)
        yield "host" if group[0].device is None else f"GPU {numbers}", group[0]


def _shares(report: Report) -> str:
    if not report.shares:
        return ""
    if report.pair.engine == VLLM:
        return "KV cache: vLLM takes what is left of its share of the memory"
    if report.pair.engine in (LLMAPI, LLMAPI_DRAFTS):
        share = next(each for each in report.shares if each.engine == report.pair.target.name)
        return f"KV cache: {share.fraction:g} of the free memory, about {share.max_tokens:,} tokens"
    rows: list[Sequence[str]] = [
        ("KV cache", "kv_cache_free_gpu_mem_fraction", "max_tokens_in_paged_kv_cache")
    ]
    rows += [(each.engine, f"{each.fraction:g}", str(each.max_tokens)) for each in report.shares]
    return "\n".join(
        [
            _wrapped(
                "KV caches: the number of tokens divides the memory. The fraction applies to the "
                "memory that is free when an engine loads; it suffices even for the last one."
            ),
            table(rows),
        ]
    )


def _remedies(report: Report) -> str:
    rows: list[Sequence[str]] = [("what would help", "GiB saved", "")]
    rows += [
        (each.what, gib(each.saved), "and everything fits" if each.fits else "")
        for each in report.remedies
    ]
    return table(rows)


def _findings(report: Report) -> str:
    parts = []
    for each in report.findings:
        parts.append(_wrapped(f"{each.severity} [{each.code}] {each.message}", "  "))
        if each.remedy:
            parts.append(_wrapped(f"  → {each.remedy}", "    "))
    return "\n".join(parts)


def _verdict(report: Report) -> str:
    counts = {kind: sum(each.severity == kind for each in report.findings) for kind in SEVERITIES}
    found = ", ".join(
        f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count
    )
    ending = f": {found}" if found else ""
    return f"{'can be built' if not counts[ERROR] else 'cannot be built'}{ending}" + (
        "" if counts[ERROR] or not counts[WARNING] else " (read them before you deploy)"
    )


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
