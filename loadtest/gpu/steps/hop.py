"""`specdec bench hop`: the milliseconds of a round outside the engines, on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtest.bench import hop
from loadtest.gpu.outcome import StepOptions, StepReport, Verdict
from loadtest.gpu.places import Places, home


def main(argv: list[str] | None = None) -> int:
    """Measure with engines that answer at once; the figure is the round of one stream."""
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    tokens, repeats = ("24", "1") if options.is_rehearsal else ("600", "3")
    streams = ["1"] if options.is_rehearsal else ["1", "16", "64"]
    with TemporaryDirectory() as scratch:
        hop.main([
            "--streams", *streams, "--max-tokens", tokens, "--repeats", repeats,
            "--model-repository", str(Places(home()).model_repository), "--out", scratch,
        ])  # fmt: skip
        costs = json.loads((Path(scratch) / "hop.json").read_text("utf-8"))["costs"]
    report.add("costs", costs)
    alone = [f"{each['arm']} {each['round_us'] / 1e3:.2f} ms" for each in costs[:3]]
    return report.finish(Verdict.PASSED, f"a round of one stream: {', '.join(alone)}")


if __name__ == "__main__":
    sys.exit(main())
