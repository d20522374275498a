"""`specdec bench inside` on a GPU: our drafters inside vLLM, beside vLLM's own server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specdec.loadtest.gpu.folders import GpuFolders, home, vllm_python
from specdec.loadtest.gpu.serving import gpu_memory_mib
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.loadtest.lab.peers import inside
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

RUNS = (["plain"], ["eagle3", "ngram"])
"""Arms of vLLM's own in each run of the bench, which starts all its engines anew. The first run
alone shows what `auto` gains, if the time is short."""
LEAST_RUN_S = 200.0
"""Seconds that a run needs; vLLM compiles in each of its servers for a minute or more."""
MEMORY_SHARE = "0.2"
"""Share of the GPU's memory for each engine; up to three run at the same time."""
MIN_GAIN, MIN_GAIN_UNDER_LOAD = 1.1, 0.97
"""Goals for `auto`: over the fastest arm of vLLM's own with one stream, and over our own server
without speculation with several."""
AUTO = "specdec in vLLM, auto"


def main(argv: list[str] | None = None) -> int:
    """Measure at 1, 16 and 48 streams; MISSED if `auto` is below one of its goals."""
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    python, found = vllm_python(is_rehearsal=options.is_rehearsal), dict[str, dict[str, Any]]()
    for number, theirs in enumerate(RUNS[:1] if options.is_rehearsal else RUNS):
        if number and options.remaining_s < LEAST_RUN_S:
            return report.finish(Verdict.TIMED_OUT, _figure(found))
        with TemporaryDirectory() as scratch:
            result = _measure(options, python, theirs, Path(scratch))
        found[" ".join(theirs)] = result
        report.add("gpu_memory_mib", gpu_memory_mib())
        report.add("runs", found)
    if not all(_autos(each) for each in found.values()):
        return report.finish(Verdict.FAILED, "auto has no figures")
    is_met = all(_is_met(each) for result in found.values() for each in _autos(result))
    is_met |= options.is_rehearsal  # So few tokens as in a rehearsal measure nothing.
    return report.finish(Verdict.PASSED if is_met else Verdict.MISSED, _figure(found))


def _measure(
    options: StepOptions, python: Path, theirs: list[str], scratch: Path
) -> dict[str, Any]:
    """Run the bench and return the contents of its results file."""
    size = ["--streams", "1", "16", "48", "--max-tokens", "96", "--every", "2"]
    if options.is_rehearsal:
        size = ["--streams", "1", "--max-tokens", "4", "--every", "12", "--learning", "1"]
    else:
        size += ["--gpu-memory-share", MEMORY_SHARE]
    inside.main([
        "--prompts", str(SHIPPED_PROMPTS), "--ours", "off", "eagle3", "auto", "--vllm", *theirs,
        "--vllm-python", str(python), *size,
        "--model-repository", str(GpuFolders(home()).model_repository),
        "--out", str(scratch), "--name", "inside",
    ])  # fmt: skip
    found: dict[str, Any] = json.loads((scratch / "inside.json").read_text("utf-8"))
    return found


def _autos(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of `auto`, one for each number of streams."""
    return [each for each in result["arms"] if each["arm"] == AUTO]


def _is_met(auto: dict[str, Any]) -> bool:
    if auto["num_streams"] == 1:
        return bool(auto["over_best"]["middle"] >= MIN_GAIN)
    return bool(auto["over_off"]["middle"] >= MIN_GAIN_UNDER_LOAD)


def _figure(found: dict[str, dict[str, Any]]) -> str:
    parts = [
        f"{each['over_best']['middle']:.2f} × {theirs}, {each['over_off']['middle']:.2f} × off at "
        f"{each['num_streams']}"
        for theirs, result in found.items()
        for each in _autos(result)
    ]
    return "auto " + "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
