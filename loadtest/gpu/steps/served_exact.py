"""`specdec bench exact` on a real tritonserver: every drafter, greedy and sampled, 48 prompts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    found = _Found()
    with served_pair(options, max_streams=16) as server, TemporaryDirectory() as scratch:
        report.add("seconds_to_start", options.seconds - options.remaining_s)
        report.add("gpu_memory_mib", gpu_memory_mib())
        longest_s = 0.0
        for start in range(0, len(lines), CHUNK):
            before_s = options.remaining_s
            if before_s < 1.5 * longest_s:
                break
            own = lines[start : start + CHUNK]
            chunk = Path(scratch) / "chunk.jsonl"
            chunk.write_text("\n".join(own) + "\n", "utf-8")
            result = _examine(server.grpc_url, chunk, Path(scratch), max_tokens)
            found.add(result, len(own), only_tokens=options.is_rehearsal)
            report.add("num_prompts", found.num_prompts)
            report.add("arms", found.sums)
            report.add("unequal", found.unequal[:20])
            longest_s = max(longest_s, before_s - options.remaining_s)
    verdict = Verdict.PASSED if found.num_prompts == len(lines) else Verdict.TIMED_OUT
    # So few tokens as in a rehearsal prove no drafter wrong.
    never_accepted = [] if options.is_rehearsal else found.never_accepted
    if found.unequal or never_accepted:
        verdict = Verdict.FAILED
    return report.finish(verdict, found.figure(never_accepted))


@dataclass(slots=True)
class _Found:
    """The results of all prompts so far."""

    sums: dict[str, Counter[str]] = field(default_factory=dict)
    """Sums over the answers, by case and arm."""
    unequal: list[Any] = field(default_factory=list)
    num_prompts: int = 0

    def add(self, result: dict[str, Any], num_prompts: int, *, only_tokens: bool) -> None:
        """Add the results of one run; with `only_tokens`, log-probabilities may differ."""
        for arm in result["arms"]:
            own = self.sums.setdefault(f"{arm['case']}, {arm['arm']}", Counter())
            own.update({name: arm[name] for name in _SUMS})
        for each in result["unequal"]:
            if each["first_difference"] is not None or not only_tokens:
                self.unequal.append(each)
        self.num_prompts += num_prompts

    @property
    def never_accepted(self) -> list[str]:
        """The arms that never had a draft token accepted."""
        return [
            name for name, own in self.sums.items() if "off" not in name and not own["num_accepted"]
        ]

    def figure(self, never_accepted: Sequence[str]) -> str:
        """Return the line of the summary."""
        total = sum(self.sums.values(), Counter())
        text = f"{total['num_equal']} of {total['num_answers']} answers equal"
        text += f", {self.num_prompts} prompts"
        if self.unequal:
            return f"{text}; {len(self.unequal)} differ"
        if never_accepted:
            return f"{text}; never accepted: {', '.join(never_accepted)}"
        return text


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
