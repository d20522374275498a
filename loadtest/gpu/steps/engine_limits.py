"""The engine against the limits of the device: bytes for a step, arithmetic for a prompt."""

from __future__ import annotations

import gc
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from specdec.loadtest.gpu.decoders.passes import (
    NUM_CONTEXT_TOKENS,
    ChainedTime,
    PromptTime,
    StepTime,
    cache_for,
    chained_times,
    prompt_time,
    step_times,
)
from specdec.loadtest.gpu.decoders.shapes import SHAPES, random_decoder
from specdec.loadtest.gpu.decoders.timing import DeviceSpeed, measure_device
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.torch_engine.parts import Parts

DRAFT_LENGTHS = (0, 3, 7)
MAX_STEP_RATIO = 1.25
"""Goal for a plain step of 8B at batch 1 and 8 ÷ its byte limit, at most."""
MAX_VERIFICATION_RATIO = 1.1
"""Goal for a pass of 8 rows of 8B at batch 1 ÷ a pass of a single row, at most."""
LEAST_S = 8.0
"""Seconds that must be left to begin another part."""
UNKNOWN = DeviceSpeed(math.nan, math.nan, math.nan)
"""Used if the device's own speed could not be measured: the times are still useful."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of everything measured, on a GPU or in a rehearsal."""

    steps: tuple[tuple[str, tuple[int, ...]], ...]
    """Shapes and batch sizes, most valuable first."""
    prompts: tuple[str, ...]
    peers: tuple[str, ...]
    chained_shape: str
    num_prompt_tokens: int
    num_calls: int
    num_read_bytes: int
    matrix_size: int


ON_GPU = Sizes(
    steps=tuple(
        (shape, batches)
        for batches in ((1, 8), (32, 128))
        for shape in ("8b", "default", "1b", "70b_slice")
    ),
    prompts=("8b", "1b", "default"),
    peers=("8b", "1b", "default"),
    chained_shape="draft",
    num_prompt_tokens=2048,
    num_calls=10,
    num_read_bytes=4_000_000_000,
    matrix_size=8192,
)
REHEARSED = Sizes(
    steps=(("tiny", (1, 2)), ("tiny", (32,))),
    prompts=("tiny",),
    peers=("tiny",),
    chained_shape="tiny",
    num_prompt_tokens=256,
    num_calls=1,
    num_read_bytes=4_000_000,
    matrix_size=256,
)


@dataclass(slots=True)
class Measured:
    """Everything measured so far, by shape."""

    steps: dict[str, list[StepTime]] = field(default_factory=dict)
    prompts: dict[str, PromptTime] = field(default_factory=dict)
    chained: list[ChainedTime] = field(default_factory=list)

    def step(self, shape: str, num_sequences: int, num_draft_tokens: int) -> StepTime | None:
        """Return one measurement; None if it is missing."""
        for each in self.steps.get(shape, []):
            if (each.num_sequences, each.num_draft_tokens) == (num_sequences, num_draft_tokens):
                return each
        return None

    def ratios(self) -> dict[str, tuple[float, float]]:
        """Return each goal's measured ratio and the largest ratio that meets it."""
        found = {}
        for num_sequences in (1, 8):
            plain = self.step("8b", num_sequences, 0)
            if plain is not None:
                name = f"8B step ÷ byte limit at batch {num_sequences}"
                found[name] = (plain.graph_us / plain.limit_us, MAX_STEP_RATIO)
        plain, wide = self.step("8b", 1, 0), self.step("8b", 1, 7)
        if plain is not None and wide is not None:
            ratio = wide.graph_us / plain.graph_us
            found["8B, 8 rows ÷ 1 row"] = (ratio, MAX_VERIFICATION_RATIO)
        return found


class Bench:
    """Runs the parts one after another; if one fails, the next ones still run."""

    def __init__(self, options: StepOptions, report: StepReport) -> None:
        self._options, self._report = options, report
        self._device = torch.device(options.device)
        self._sizes = REHEARSED if options.is_rehearsal else ON_GPU
        self.measured = Measured()
        self.errors: dict[str, str] = {}
        self.is_timed_out = False
        self._seconds: dict[str, float] = {}
        self._speed = UNKNOWN
        self._loaded: tuple[str, Parts] | None = None

    @torch.inference_mode()
    def run(self) -> None:
        """Measure everything that the time allows."""
        sizes = self._sizes
        self._report.add("num_context_tokens", NUM_CONTEXT_TOKENS)
        self._part("device", self._measure_device)
        for shape, batches in sizes.steps:
            self._part(f"steps of {shape} {batches}", lambda: self._steps(shape, batches))  # noqa: B023
        for shape in sizes.prompts:
            self._part(f"prompt of {shape}", lambda: self._prompt(shape))  # noqa: B023
        self._part("chained", self._chained)
        self._loaded = None
        for shape in sizes.peers:
            self._part(f"transformers of {shape}", lambda: self._peer(shape))  # noqa: B023

    def _part(self, name: str, measure: Callable[[], None]) -> None:
        if self._options.remaining_s < (0 if self._options.is_rehearsal else LEAST_S):
            self.is_timed_out = True
            return
        start_s = time.monotonic()
        try:
            measure()
        except Exception as error:  # noqa: BLE001  the other parts are still worth their seconds
            traceback.print_exc()
            self.errors[name] = f"{type(error).__name__}: {error}"[:300]
            self._report.add("errors", self.errors)
        self._seconds[name] = time.monotonic() - start_s
        self._report.add("seconds", self._seconds)
        print(f"{name}: {self._seconds[name]:.1f} s", flush=True)
        gc.collect()
        # Without CUDA this does nothing.
        torch.cuda.empty_cache()

    def _measure_device(self) -> None:
        sizes = self._sizes
        self._speed = measure_device(self._device, sizes.num_read_bytes, sizes.matrix_size)
        self._report.add("device", self._speed)

    def _parts_of(self, shape: str) -> Parts:
        if self._loaded is None or self._loaded[0] != shape:
            # Its memory must be free before the next decoder is made.
            self._loaded = None
            made = random_decoder(SHAPES[shape], self._device, torch.bfloat16)
            self._loaded = (shape, made)
        return self._loaded[1]

    def _steps(self, shape: str, batches: tuple[int, ...]) -> None:
        config, parts = SHAPES[shape], self._parts_of(shape)
        cache = cache_for(config, max(batches), self._device, torch.bfloat16)
        own = self.measured.steps.setdefault(shape, [])
        # 128 sequences of 8 rows read all weights 32 times; ten calls each would take too long.
        calls = self._sizes.num_calls if max(batches) <= 8 else 1
        for each in step_times(config, parts, self._speed, cache, batches, DRAFT_LENGTHS, calls):
            own.append(each)
            self._report.add("steps", self.measured.steps)
            self._report.add("ratios", self.measured.ratios())
            if self._options.remaining_s < 0:
                self.is_timed_out = True
                return

    def _prompt(self, shape: str) -> None:
        config, parts = SHAPES[shape], self._parts_of(shape)
        cache = cache_for(config, 8, self._device, torch.bfloat16)
        tokens = self._sizes.num_prompt_tokens
        self.measured.prompts[shape] = prompt_time(config, parts, self._speed, cache, tokens)
        self._report.add("prompts", self.measured.prompts)

    def _chained(self) -> None:
        parts, batches = self._parts_of(self._sizes.chained_shape), (1, 8)
        cache = cache_for(
            SHAPES[self._sizes.chained_shape], max(batches), self._device, torch.bfloat16
        )
        for each in chained_times(parts, cache, batches, (2, 4, 8), self._sizes.num_calls):
            self.measured.chained.append(each)
            self._report.add("chained", self.measured.chained)

    def _peer(self, shape: str) -> None:
        from specdec.loadtest.gpu.decoders.peer import peer_times  # noqa: PLC0415  takes seconds

        found: list[object] = []
        arguments = (SHAPES[shape], self._device, torch.bfloat16, (1, 8), (1, 8))
        for each in peer_times(*arguments, num_calls=self._sizes.num_calls):
            found.append(each)
            self._report.add(f"transformers_{shape}", found)
            if self._options.remaining_s < 0:
                self.is_timed_out = True
                return


def main(argv: list[str] | None = None) -> int:
    """Measure; MISSED if a goal is missed, FAILED if a part raised, else TIMED_OUT or PASSED."""
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    bench = Bench(options, report)
    bench.run()
    measured, errors, is_rehearsal = bench.measured, bench.errors, options.is_rehearsal
    verdict = verdict_of(
        measured.ratios(), errors, is_timed_out=bench.is_timed_out, is_rehearsal=is_rehearsal
    )
    return report.finish(verdict, _figure(measured, errors, is_rehearsal=is_rehearsal))


def verdict_of(
    ratios: Mapping[str, tuple[float, float]],
    errors: Mapping[str, str],
    *,
    is_timed_out: bool,
    is_rehearsal: bool,
) -> Verdict:
    """Return the step's verdict; in a rehearsal, times decide nothing."""
    if errors:
        return Verdict.FAILED
    if is_timed_out:
        return Verdict.TIMED_OUT
    is_met = all(ratio <= largest for ratio, largest in ratios.values())
    return Verdict.PASSED if is_met or is_rehearsal else Verdict.MISSED


def _figure(measured: Measured, errors: Iterable[str], *, is_rehearsal: bool) -> str:
    num_steps = sum(map(len, measured.steps.values()))
    shown = [f"{num_steps + len(measured.prompts) + len(measured.chained)} measurements"]
    if not is_rehearsal:
        prompts = measured.prompts.items()
        shown = [f"{name} {ratio:.2f}" for name, (ratio, _) in measured.ratios().items()]
        shown += [f"prompt of {shape} {each.share_of_peak:.2f} of peak" for shape, each in prompts]
    return "; ".join([*shown, *(f"{name} failed" for name in errors)])


if __name__ == "__main__":
    sys.exit(main())
