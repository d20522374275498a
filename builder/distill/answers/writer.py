"""Writing the target's answers, many at once, with their top-k log-probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.builder.distill.answers.target_runner import TargetRunner, top_logprobs

LOOP_SPAN = 60
"""Tokens that must repeat before an answer is cut."""
LOOP_PERIOD = 20
"""Longest period, in tokens, that counts as a loop."""
LOOP_EVERY = 10
"""Steps between two searches for loops."""


@dataclass(frozen=True)
class Job:
    """A prompt to be answered: token ids, temperature (0 is greedy) and most tokens to write."""

    index: int
    prompt: list[int]
    temperature: float
    max_new: int


@dataclass(frozen=True)
class Written:
    """A finished answer: its tokens, the end token included.

    `top_ids` int32 and `top_logprobs` float32, both [len, num_top], are the target's most likely
    tokens at each position. A target with taps adds the `features` of prompt and answer without
    its last token, [inputs, taps, hidden] bf16.
    """

    job: Job
    tokens: list[int]
    top_ids: Tensor
    top_logprobs: Tensor
    features: Tensor | None = None


def loops(tails: Tensor) -> Tensor:
    """Return which rows repeat a period of at most LOOP_PERIOD tokens: bool [rows].

    `tails` int64 [rows, LOOP_SPAN] holds the last tokens of each row.
    """
    found = torch.zeros(len(tails), dtype=torch.bool, device=tails.device)
    for period in range(1, LOOP_PERIOD + 1):
        found |= (tails[:, period:] == tails[:, :-period]).all(dim=1)
    return found


def draw(ids: Tensor, logprobs: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the next token of each row from its best candidates: int64 [rows].

    `ids` and `logprobs` are [rows, num], `temperatures` [rows]. Temperature 0 takes the most likely
    token, others a Gumbel-max draw. Tokens beyond the candidates are never drawn.
    """
    noise = torch.rand(logprobs.shape, generator=generator, device=generator.device)
    gumbel = -torch.log(-torch.log(noise.clamp_(1e-9, 1 - 1e-7))).to(logprobs.device)
    is_warm = temperatures[:, None] > 0
    scores = torch.where(
        is_warm, logprobs / temperatures[:, None].clamp(min=1e-3) + gumbel, logprobs
    )
    return ids.gather(1, scores.argmax(dim=1, keepdim=True))[:, 0]


@dataclass(frozen=True)
class WriterSettings:
    """The settings of drawing tokens and of keeping candidates.

    Each token is drawn from `num_candidates`; `num_top` of them are kept. New answers wait until
    `min_refill` slots are free, so that their prefills share matrix products (default: a sixteenth
    of the slots, at least four).
    """

    stop_ids: frozenset[int]
    num_top: int = 16
    num_candidates: int = 48
    min_refill: int | None = None
    cut_loops: bool = True
    seed: int = 0


class _Writer:
    """The answers in the slots of one target, side by side in tensors [slots, …]."""

    def __init__(self, runner: TargetRunner, settings: WriterSettings) -> None:
        self.runner, self.settings = runner, settings
        device, num, longest = runner.device, runner.num_slots, runner.max_len
        self.generator = torch.Generator(device).manual_seed(settings.seed)
        self.jobs: list[Job | None] = [None] * num
        self.stops = torch.zeros(len(runner.model.embed), dtype=torch.bool, device=device)
        self.stops[list(settings.stop_ids)] = True
        kept = (num, longest, settings.num_top)
        self.tokens = torch.zeros((num, longest), dtype=torch.int64, device=device)
        self.ids = torch.zeros(kept, dtype=torch.int32, device=device)
        self.logprobs = torch.zeros(kept, dtype=torch.float32, device=device)
        self.num_written = torch.zeros(num, dtype=torch.int64, device=device)
        self.limits = torch.zeros(num, dtype=torch.int64, device=device)
        self.temperatures = torch.zeros(num, device=device)
        self.running = torch.zeros(num, dtype=torch.bool, device=device)
        self.num_steps = 0

    @property
    def free(self) -> list[int]:
        """Slots without a running answer."""
        return [i for i, job in enumerate(self.jobs) if job is None]

    def start(self, jobs: list[Job]) -> Iterator[Written]:
        """Prefill the jobs into free slots and draw their first tokens; yield answers that end."""
        taken = self.free[: len(jobs)]
        device = self.runner.device
        at = torch.tensor(taken, device=device)
        room = [min(j.max_new, self.runner.max_len - 1 - len(j.prompt)) for j in jobs]
        self.limits[at] = torch.tensor(room, device=device)
        self.temperatures[at] = torch.tensor([job.temperature for job in jobs], device=device)
        self.num_written[at] = 0
        self.running[at] = True
        for slot, job in zip(taken, jobs, strict=True):
            self.jobs[slot] = job
        yield from self.take(at, self.runner.prefill(taken, [job.prompt for job in jobs]))

    def step(self) -> Iterator[Written]:
        """Draw one token for every running answer; yield the answers that end."""
        slots = torch.arange(len(self.jobs), device=self.runner.device)
        last = self.tokens[slots, (self.num_written - 1).clamp(min=0)]
        self.num_steps += 1
        yield from self.take(slots, self.runner.decode(last, self.running))

    @torch.inference_mode()
    def take(self, slots: Tensor, logits: Tensor) -> Iterator[Written]:
        """Draw one token for each of the slots, and yield the answers that end.

        `logits` [len(slots), vocab] has a row for each slot, in order.
        """
        keep, at = self.settings.num_top, self.num_written[slots]
        logprobs, ids = top_logprobs(logits, self.settings.num_candidates)
        tokens = draw(ids, logprobs, self.temperatures[slots], self.generator)
        running = self.running[slots]
        # An idle slot writes after the end of its answer, where no one reads.
        self.tokens[slots, at] = tokens
        self.ids[slots, at] = ids[:, :keep].int()
        self.logprobs[slots, at] = logprobs[:, :keep]
        self.num_written[slots] += running
        ended = self.stops[tokens] | (at + 1 >= self.limits[slots])
        if self.settings.cut_loops and self.num_steps % LOOP_EVERY == 0:
            ended |= self._loops(slots)
        done = slots[ended & running]
        self.running[done] = False
        if len(done):
            yield from self._written(done)

    def _loops(self, slots: Tensor) -> Tensor:
        """Return which of the slots repeat themselves: bool [len(slots)]."""
        first = self.num_written[slots] - LOOP_SPAN
        columns = first.clamp(min=0)[:, None] + torch.arange(LOOP_SPAN, device=first.device)
        tails = self.tokens[slots[:, None], columns.clamp(max=self.runner.max_len - 1)]
        return loops(tails) & (first >= 0)

    def _written(self, done: Tensor) -> list[Written]:
        """Return the answers in the slots `done` int64, and free these slots."""
        slots = done.tolist()
        self.runner.park(slots)
        nums = self.num_written[done].cpu()
        most = int(nums.max())
        kept = (self.tokens, self.ids, self.logprobs)
        tokens, ids, logprobs = (each[done, :most].cpu() for each in kept)
        found = []
        for at, (slot, num) in enumerate(zip(slots, nums.tolist(), strict=True)):
            job = self.jobs[slot]
            assert job is not None
            self.jobs[slot] = None
            features = None
            # Copied, because another answer will use the slot.
            if self.runner.taps:
                num_read = len(job.prompt) + num - 1
                features = self.runner.features[slot, :num_read].to("cpu", copy=True)
            own = (ids[at, :num].clone(), logprobs[at, :num].clone())
            found.append(Written(job, tokens[at, :num].tolist(), *own, features))
        return found


def write(
    runner: TargetRunner,
    jobs: Iterator[Job],
    settings: WriterSettings,
    keep_going: Callable[[], bool] = lambda: True,
) -> Iterator[Written]:
    """Run the jobs through the target's slots; yield answers as they finish.

    When `keep_going` returns False, running answers are finished and no new ones are started.
    """
    writer = _Writer(runner, settings)
    more = True
    min_refill = settings.min_refill or max(4, runner.num_slots // 16)
    min_refill = min(min_refill, runner.num_slots)
    while True:
        num_free = len(writer.free)
        more = more and keep_going()
        if more and num_free >= min_refill:
            started = list(itertools.islice(jobs, num_free))
            more = len(started) == num_free
            if started:
                yield from writer.start(started)
        if len(writer.free) < runner.num_slots:
            yield from writer.step()
        elif not more:
            return
