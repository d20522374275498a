"""`specdec bench exact` on a real tritonserver: every drafter, greedy and sampled, 48 prompts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specdec.loadtest.gpu.folders import GpuFolders, home
from specdec.loadtest.gpu.serving import DRAFTERS, gpu_memory_mib, served_pair
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.loadtest.lab.exactness import exact
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

NUM_PROMPTS = 48
SHORT_PROMPTS = SHIPPED_PROMPTS.with_name("short.jsonl")
CHUNK = 8
"""Prompts of one run of the bench, and so the most that the time limit can cost."""
CASES = ("0", "0.8:0.95")
_SUMS = (
    *("num_answers", "num_equal", "num_equal_log_probs"),
    *("num_tokens", "num_drafted", "num_accepted"),
)


def main(argv: list[str] | None = None) -> int:
    """Compare answers with the target's own; FAILED if a token or a log-probability differs.

    It also fails if a drafter never had a draft token accepted. In a rehearsal only tokens count:
    on a CPU the passes of `kernels: graph` do not promise the same bits in every batch.
    """
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    num_prompts, max_tokens = (1, 2) if options.is_rehearsal else (NUM_PROMPTS, 64)
    prompts = SHORT_PROMPTS if options.is_rehearsal else SHIPPED_PROMPTS
    lines = prompts.read_text("utf-8").splitlines()[:num_prompts]
    sums: dict[str, Counter[str]] = {}
    unequal: list[Any] = []
    num_done, longest_s = 0, 0.0
    with served_pair(options, max_streams=16) as server, TemporaryDirectory() as scratch:
        report.add("seconds_to_start", options.seconds - options.remaining_s)
        report.add("gpu_memory_mib", gpu_memory_mib())
        for start in range(0, len(lines), CHUNK):
            before_s = options.remaining_s
            if before_s < 1.5 * longest_s:
                break
            chunk = Path(scratch) / "chunk.jsonl"
            chunk.write_text("\n".join(lines[start : start + CHUNK]) + "\n", "utf-8")
            found = _examine(server.grpc_url, chunk, Path(scratch), max_tokens)
            for arm in found["arms"]:
                own = sums.setdefault(f"{arm['case']}, {arm['arm']}", Counter())
                own.update({name: arm[name] for name in _SUMS})
            unequal += [
                each
                for each in found["unequal"]
                if each["first_difference"] is not None or not options.is_rehearsal
            ]
            num_done += len(lines[start : start + CHUNK])
            report.add("num_prompts", num_done)
            report.add("arms", sums)
            report.add("unequal", unequal[:20])
            longest_s = max(longest_s, before_s - options.remaining_s)
    total = sum(sums.values(), Counter())
    figure = f"{total['num_equal']} of {total['num_answers']} answers equal, {num_done} prompts"
    if unequal:
        return report.finish(Verdict.FAILED, f"{figure}; {len(unequal)} differ")
    never = [name for name, own in sums.items() if "off" not in name and not own["num_accepted"]]
    # So few tokens as in a rehearsal prove no drafter wrong.
    if never and not options.is_rehearsal:
        return report.finish(Verdict.FAILED, f"{figure}; never accepted: {', '.join(never)}")
    return report.finish(Verdict.PASSED if num_done == len(lines) else Verdict.TIMED_OUT, figure)


def _examine(grpc_url: str, prompts: Path, scratch: Path, max_tokens: int) -> dict[str, Any]:
    """Run the bench on one file of prompts and return the contents of its results file."""
    exact.main([
        "--prompts", str(prompts), "--max-tokens", str(max_tokens), "--cases", *CASES,
        "--drafters", *DRAFTERS, "--concurrency", "8", "--grpc-url", grpc_url,
        "--model-repository", str(GpuFolders(home()).model_repository),
        "--out", str(scratch), "--name", "exact",
    ])  # fmt: skip
    found: dict[str, Any] = json.loads((scratch / "exact.json").read_text("utf-8"))
    return found


if __name__ == "__main__":
    sys.exit(main())
