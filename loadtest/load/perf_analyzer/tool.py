"""Triton's own load tool `perf_analyzer`: fetch it, run it, and read what it recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.clients.figures import num_compared
from specdec.loadtest.load.exchange import INCOMPLETE
from specdec.loadtest.load.plan import Plan
from specdec.loadtest.load.samples import OK, ChunkSample, RequestSample, Samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specdec.loadtest.load.settings import LoadSettings

# The last client wheel with the binary, and the wheel of a library that the binary needs.
_WHEELS = ("tritonclient==2.50.0", "nvidia-cuda-runtime-cu12==12.9.79")
_DEBIAN_PACKAGE = "libb64-0d"
_WANTED = ("perf_analyzer", "libcudart.so.12", "libb64.so.0d")


def install(directory: Path) -> None:
    """Download the tool from PyPI and Debian into `directory`; nothing is installed.

    Needs `apt-get` and `dpkg` for libb64. Raises CalledProcessError if a download fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", name, *_WHEELS], check=True)
        subprocess.run(["apt-get", "download", _DEBIAN_PACKAGE], check=True, cwd=scratch)
        for wheel in scratch.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(scratch / "unpacked")
        for package in scratch.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, scratch / "unpacked"], check=True)
        for wanted in _WANTED:
            found = next(path for path in scratch.rglob(wanted) if path.is_file())
            shutil.copy(found, directory / wanted)
    (directory / "perf_analyzer").chmod(0o755)


def write_inputs(settings: LoadSettings, path: Path) -> None:
    """Write the questions of our own load test as an input file of the tool.

    `settings` must limit the number of requests: without a limit the questions have no end.
    """
    plan = Plan(settings)
    rows: list[dict[str, Any]] = []
    while question := plan.next_question(now_s=0.0):
        tensors = question.request.tensors(stream=True)
        rows.append({tensor.name: list(tensor.values) for tensor in tensors})
    path.write_text(json.dumps({"data": rows}, ensure_ascii=False), encoding="utf-8")


def run_tool(tool: Path, settings: LoadSettings) -> Samples:
    """Put the same load on the server as `run_load` does, and return what the tool recorded.

    The tool has no timeouts and waits for ever if the server dies. It is therefore killed after
    `settings.timeout_s` for each request that a user has to send one after another. Raises
    RuntimeError if the tool fails or takes longer, with the end of its output if there is any.
    """
    num_rounds = -(-(settings.num_requests or 1) // settings.users)
    inputs, export = settings.out / "inputs.json", settings.out / "profile_export.json"
    write_inputs(settings, inputs)
    export.unlink(missing_ok=True)
    libraries = [str(tool.parent.resolve()), os.environ.get("LD_LIBRARY_PATH", "")]
    try:
        result = subprocess.run(
            command_line(tool, settings, inputs, export),
            env=os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))},
            capture_output=True,
            text=True,
            check=False,
            timeout=num_rounds * settings.timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{tool} was still waiting after {error.timeout:.0f} s") from error
    text = result.stdout + result.stderr
    (settings.out / "perf_analyzer.txt").write_text(text, encoding="utf-8")
    if result.returncode != 0 or not export.exists():
        raise RuntimeError(f"{tool} ended with code {result.returncode}: {text.strip()[-500:]}")
    try:
        return read_export(json.loads(export.read_bytes()))
    except (ValueError, LookupError) as error:
        raise RuntimeError(f"{tool} left a record that cannot be read: {error!r}") from error


def command_line(tool: Path, settings: LoadSettings, inputs: Path, export: Path) -> list[str]:
    """Return the command that measures one gRPC streaming setting and sends each input once."""
    return [
        str(tool),
        *("-m", settings.model),
        *("-u", settings.url),
        *("-i", "grpc"),
        "--async",
        "--streaming",
        f"--input-data={inputs}",
        f"--concurrency-range={settings.users}",
        f"--request-count={settings.num_requests}",
        "--stability-percentage=999",
        f"--profile-export-file={export}",
    ]


def read_export(export: Mapping[str, Any]) -> Samples:
    """Turn a profile export into our samples, so that the same formulas apply to both tools."""
    rows = export["experiments"][0]["requests"]
    begin_ns = min(row["timestamp"] for row in rows)
    requests: list[RequestSample] = []
    chunks: list[ChunkSample] = []
    for number, row in enumerate(rows):
        arrivals = _arrivals(row, request_id=f"foreign-{number:06d}")
        requests.append(_request(row, arrivals, f"foreign-{number:06d}", begin_ns))
        chunks.extend(arrivals)
    return Samples(tuple(requests), tuple(chunks))


def _real_outputs(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the responses up to the one with a finish reason; none if no response has one.

    The tool also records the empty response that ends the stream, and fills it with stray memory.
    """
    outputs: Sequence[Mapping[str, Any]] = row["response_outputs"]
    ends = (number for number, output in enumerate(outputs) if output.get("finish_reason"))
    return outputs[: next(ends, -1) + 1]


def _arrivals(row: Mapping[str, Any], request_id: str) -> list[ChunkSample]:
    times_ns = row["response_timestamps"]
    chunks: list[ChunkSample] = []
    num_before = 0
    for output, time_ns in zip(_real_outputs(row), times_ns, strict=False):
        num_tokens = _num_tokens(output, num_before)
        num_before += num_tokens
        if num_tokens:
            chunks.append(ChunkSample(request_id, (time_ns - row["timestamp"]) / 1e9, num_tokens))
    return chunks


def _num_tokens(output: Mapping[str, Any], num_before: int) -> int:
    """Count the tokens of one response that follows `num_before` earlier tokens.

    The tool writes one token as a bare number, and no token as a bare number from stray memory. On
    the last response the server's own count tells the two apart.
    """
    ids = output["output_ids"]
    if isinstance(ids, list):
        return len(ids)
    return 0 if output.get("num_output_tokens") == num_before and output["finish_reason"] else 1


def _request(
    row: Mapping[str, Any], arrivals: Sequence[ChunkSample], request_id: str, begin_ns: int
) -> RequestSample:
    outputs = _real_outputs(row)
    final = outputs[-1] if outputs else {}
    num_tokens = sum(chunk.num_tokens for chunk in arrivals)
    statistics = json.loads(final.get("speculative_decoding") or "{}")
    return RequestSample(
        request_id=request_id,
        prompt_id="",
        category="all",
        start_s=(row["timestamp"] - begin_ns) / 1e9,
        lateness_s=0.0,
        ttft_s=arrivals[0].arrival_s if arrivals else None,
        e2e_s=(max(row["response_timestamps"], default=row["timestamp"]) - row["timestamp"]) / 1e9,
        num_input_tokens=final.get("num_input_tokens"),
        num_output_tokens=num_tokens,
        num_chunks=len(arrivals),
        num_draft_tokens=final.get("total_draft_tokens"),
        num_accepted_tokens=final.get("total_accepted_draft_tokens"),
        num_rounds=statistics.get("num_spec_steps"),
        num_compared=num_compared(statistics),
        acceptance_histogram=tuple(statistics.get("acceptance_histogram", ())),
        finish_reason=final.get("finish_reason", ""),
        outcome=OK if num_tokens and final.get("num_output_tokens") == num_tokens else INCOMPLETE,
        detail="",
    )
