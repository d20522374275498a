"""Check that a row's bits depend on its own sequence alone, so that on and off give the same."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdec.loadtest.gpu.decoders.shapes import SHAPES, Streams, random_decoder
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.torch_engine.config import EngineLimits, ModelConfig
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.parts import Parts

NUM_LAYERS = 2
"""Layers of each shape; widths decide how a kernel sums, and further layers only repeat it."""
CONTEXTS = (3, 250, 255, 256, 500, 511, 300, 120, 200, 290, 17, 400, 255, 60, 1, 350)
"""Context length of each of sixteen sequences, on both sides of block borders."""
NUM_ROWS = 8
LIMITS = EngineLimits(
    max_seq_len=1024, max_draft_len=NUM_ROWS, max_num_sequences=16, num_cache_tokens=16 * 4 * 256
)
CPU_TOLERANCE = 1e-4
"""Largest difference of a logit that is allowed in a rehearsal.

In float32, a CPU's kernels sum in another order for other shapes. Only CUDA promises equal bits.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows that must be equal to the bit, computed in two ways."""

    name: str
    num_rows: int
    num_unequal: int
    """Rows with a different bit in the hidden state or in a logit."""
    num_other_tokens: int
    """Rows with a different most likely token."""
    largest_difference: float
    """Largest absolute difference of a logit."""


class Engine:
    """A decoder with two caches: one that its graphs use, and one that they do not know."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        self.parts: Parts = random_decoder(config, device, dtype)
        self._captured, self._launched = (
            KVCache(config, LIMITS.num_cache_tokens, device, dtype) for _ in range(2)
        )
        self.parts.prepare(LIMITS, self._captured)

    def rows_of(self, requests: list[int], num_rows: int, *, with_graphs: bool = True) -> Tensor:
        """Return the rows of one pass, each after its request's own context.

        The hidden states are [requests, num_rows, hidden]. `requests` are indices into CONTEXTS.
        """
        cache = self._captured if with_graphs else self._launched
        streams = self._after_contexts(cache, requests)
        rows = streams.rows(requests, num_rows, num_asked=num_rows)
        hidden = self.parts.decoder.run(rows, cache).view(len(requests), num_rows, -1).clone()
        for sequence in rows.sequences:
            cache.discard(sequence)
        return hidden

    def single_steps(self, request: int, count: int) -> Tensor:
        """Return [count, hidden]: the same rows of one request, each from a pass of its own."""
        streams, found = self._after_contexts(self._captured, [request]), []
        for _ in range(count):
            rows = streams.rows([request], 1, num_asked=1)
            found.append(self.parts.decoder.run(rows, self._captured)[0].clone())
        self._captured.discard(rows.sequences[0])
        return torch.stack(found)

    def _after_contexts(self, cache: KVCache, requests: list[int]) -> Streams:
        streams = Streams(cache)
        for request in requests:
            self.parts.decoder.run(streams.rows([request], CONTEXTS[request], num_asked=0), cache)
        return streams


def main(argv: list[str] | None = None) -> int:
    """Compare every shape; FAILED if a bit differs (in a rehearsal: more than CPU_TOLERANCE)."""
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    names = ("tiny",) if options.is_rehearsal else ("default", "8b", "1b", "70b_slice")
    found: dict[str, list[Comparison]] = {}
    errors: dict[str, str] = {}
    is_timed_out = False
    for name in names:
        if options.remaining_s < 0:
            is_timed_out = True
            break
        try:
            for comparison in compare(name, options):
                found.setdefault(name, []).append(comparison)
                report.add("comparisons", found)
        except Exception as error:  # noqa: BLE001  the other shapes are still worth comparing
            traceback.print_exc()
            errors[name] = f"{type(error).__name__}: {error}"[:300]
            report.add("errors", errors)
    is_good = not errors and all(
        each.largest_difference <= CPU_TOLERANCE if options.is_rehearsal else not each.num_unequal
        for own in found.values()
        for each in own
    )
    verdict = Verdict.TIMED_OUT if is_timed_out else Verdict.PASSED
    return report.finish(verdict if is_good else Verdict.FAILED, _figure(found, errors))


@torch.inference_mode()
def compare(name: str, options: StepOptions) -> Iterator[Comparison]:
    """Compare the rows of one shape, each computed in two ways.

    The ways are: in a batch and alone, replayed and launched, in one wide pass and in single steps.
    """
    dtype = torch.float32 if options.is_rehearsal else torch.bfloat16
    config = replace(SHAPES[name], num_layers=NUM_LAYERS)
    engine = Engine(config, torch.device(options.device), dtype)
    everyone = list(range(len(CONTEXTS)))
    for num_rows in (1, NUM_ROWS):
        together = engine.rows_of(everyone, num_rows)
        by_itself = torch.cat([engine.rows_of([each], num_rows) for each in everyone])
        yield _compared(f"batch of 16, {num_rows} rows each", engine, together, by_itself)
        launched = engine.rows_of(everyone, num_rows, with_graphs=False)
        yield _compared(f"launched, {num_rows} rows each", engine, together, launched)
    border = 1  # A context of 250 tokens: the rows cross into the next block.
    (wide,) = engine.rows_of([border], NUM_ROWS)
    steps = engine.single_steps(border, NUM_ROWS)
    yield _compared(f"{NUM_ROWS} rows and {NUM_ROWS} steps", engine, wide, steps)


def _compared(name: str, engine: Engine, left: Tensor, right: Tensor) -> Comparison:
    """Compare hidden states [..., hidden], and the logits that the head makes from them.

    The head computes all rows of `left` at once, and those of `right` one by one.
    """
    head = engine.parts.output_head
    left, right = left.flatten(0, -2), right.flatten(0, -2)
    left_logits = head.logits(left)
    right_logits = torch.cat([head.logits(row[None])[:1] for row in right])
    is_unequal = _differs(left, right) | _differs(left_logits, right_logits)
    other_tokens = left_logits.argmax(dim=-1) != right_logits.argmax(dim=-1)
    return Comparison(
        name=name,
        num_rows=len(left),
        num_unequal=int(is_unequal.sum()),
        num_other_tokens=int(other_tokens.sum()),
        largest_difference=float((left_logits - right_logits).abs().max()),
    )


def _differs(left: Tensor, right: Tensor) -> Tensor:
    """Return for each row whether any bit differs: left, right [n, width] float32 → [n] bool."""
    return (left.view(torch.int32) != right.view(torch.int32)).any(dim=-1)


def _figure(found: dict[str, list[Comparison]], errors: dict[str, str]) -> str:
    every = [each for own in found.values() for each in own]
    num_rows, num_unequal = (
        sum(each.num_rows for each in every),
        sum(each.num_unequal for each in every),
    )
    shown = f"{len(found)} shapes, {num_unequal} of {num_rows} rows differ in a bit"
    return "; ".join([shown, *(f"{name} failed" for name in errors)])


if __name__ == "__main__":
    sys.exit(main())
