"""`specdec bench inside` on a GPU: our drafters inside vLLM, beside vLLM's own server."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from specdec.loadtest.gpu.folders import GpuFolders, home, vllm_python
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.loadtest.kit.ratios import rate
from specdec.loadtest.lab.peers.inside import OUR_ARMS, VLLM_ARMS, measure, parsed
from specdec.loadtest.lab.peers.measuring import PeerRun
from specdec.loadtest.lab.peers.report import answers_of
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

OURS = ("off", "eagle3", "auto")
RUNS = (("plain",), ("eagle3", "ngram"))
"""Arms of vLLM's own in each run of the bench, which starts all its engines anew. The first run
alone shows what `auto` gains, if the time is short."""
LEAST_RUN_S = 200.0
"""Seconds that a run needs; vLLM compiles in each of its servers for a minute or more."""
MEMORY_SHARE = "0.2"
"""Share of the GPU's memory for each engine; up to three run at the same time."""
MIN_GAIN, MIN_GAIN_UNDER_LOAD = 1.1, 0.97
"""Goals for `auto`: ÷ the fastest arm of vLLM's own with one stream, and ÷ our own server without
speculation with several."""


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens per second of all arms with one number of streams, by their modes."""

    num_streams: int
    ours: dict[str, float]
    vllms: dict[str, float]

    @property
    def is_complete(self) -> bool:
        """Whether all arms that the goals compare were measured."""
        return {"auto", "off"} <= self.ours.keys() and bool(self.vllms)

    @property
    def is_met(self) -> bool:
        """Whether `auto` reaches its goal."""
        auto = self.ours["auto"]
        if self.num_streams == 1:
            return auto >= MIN_GAIN * max(self.vllms.values())
        return auto >= MIN_GAIN_UNDER_LOAD * self.ours["off"]

    def __str__(self) -> str:
        auto, best = self.ours["auto"], max(self.vllms, key=self.vllms.__getitem__)
        over_best, over_off = auto / self.vllms[best], auto / self.ours["off"]
        return f"{over_best:.2f} × {best}, {over_off:.2f} × off at {self.num_streams}"


def main(argv: list[str] | None = None) -> int:
    """Measure at 1, 16 and 48 streams; MISSED if `auto` is below one of its goals."""
    options = StepOptions.parse(argv)
    report, found = StepReport(options.out), list[Load]()
    for number, theirs in enumerate(RUNS[:1] if options.is_rehearsal else RUNS):
        if number and options.remaining_s < LEAST_RUN_S:
            return report.finish(Verdict.TIMED_OUT, _figure(found))
        arguments = parsed(_options(options, theirs))
        run, faults = measure(arguments)
        loads = [_load(run, count) for count in arguments.streams]
        found += loads
        report.add("loads", found)
        if faults or not all(each.is_complete for each in loads):
            report.add("faults", faults)
            return report.finish(Verdict.FAILED, "; ".join(faults) or "an arm has no figures")
    # So few tokens as in a rehearsal measure nothing.
    is_met = options.is_rehearsal or all(each.is_met for each in found)
    return report.finish(Verdict.PASSED if is_met else Verdict.MISSED, _figure(found))


def _options(options: StepOptions, theirs: tuple[str, ...]) -> list[str]:
    """Return the command line of the bench."""
    if options.is_rehearsal:
        size = ["--streams", "1", "2", "--max-tokens", "4", "--every", "12", "--learning", "1"]
        size += ["--repeats", "1"]
    else:
        size = ["--streams", "1", "16", "48", "--max-tokens", "96", "--every", "2"]
        size += ["--gpu-memory-share", MEMORY_SHARE]
    return [
        "--prompts", str(SHIPPED_PROMPTS), "--ours", *OURS, "--vllm", *theirs, *size,
        "--vllm-python", str(vllm_python(is_rehearsal=options.is_rehearsal)),
        "--model-repository", str(GpuFolders(home()).model_repository),
    ]  # fmt: skip


def _load(run: PeerRun, num_streams: int) -> Load:
    rates = {
        arm: rate(each.timed for each in answered.values())
        for arm in (*OUR_ARMS, *VLLM_ARMS)
        if (answered := answers_of(run.measurements, arm, num_streams))
    }
    ours, vllms = (
        {arm.mode: rates[arm] for arm in arms if arm in rates} for arms in (OUR_ARMS, VLLM_ARMS)
    )
    return Load(num_streams, ours, vllms)


def _figure(found: list[Load]) -> str:
    return "auto " + "; ".join(map(str, found))


if __name__ == "__main__":
    sys.exit(main())
