"""Continuous-batch writing: answers of the target with its top-k log-probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from builder.distill.teacher import Passed, Teacher, top_logprobs

LOOP_SPAN = 60  # tokens that must repeat before an answer is cut
LOOP_PERIOD = 20  # the longest period looked for


@dataclass(frozen=True)
class Job:
    """One prompt: token ids, temperature (0 is greedy) and the most tokens to write."""

    index: int
    prompt: list[int]
    temperature: float
    max_new: int


@dataclass(frozen=True)
class Written:
    """One finished answer: its tokens, the end token included.

    Per token the teacher's `num_top` best ids int64 and log-probabilities float32, both
    [len, num_top]; from a teacher with taps also the features of prompt and answer without its
    last token, [inputs, taps, hidden] bf16.
    """

    job: Job
    tokens: list[int]
    top_ids: Tensor
    top_logprobs: Tensor
    features: Tensor | None = None


def loops(tokens: list[int]) -> bool:
    """True where the last LOOP_SPAN tokens repeat themselves with a short period."""
    tail = tokens[-LOOP_SPAN:]
    if len(tail) < LOOP_SPAN:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, LOOP_PERIOD + 1))


def draw(ids: Tensor, logprobs: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """Next tokens [rows] from the best candidates [rows, num].

    Argmax where T = 0, else a Gumbel-max draw; the tail beyond the candidates is dropped.
    """
    noise = torch.rand(logprobs.shape, generator=generator).clamp_(1e-9, 1 - 1e-7)
    gumbel = -torch.log(-torch.log(noise)).to(logprobs.device)
    warm = temperatures[:, None] > 0
    scores = torch.where(warm, logprobs / temperatures[:, None].clamp(min=1e-3) + gumbel, logprobs)
    return ids.gather(1, scores.argmax(dim=1, keepdim=True))[:, 0]


class _Slot:
    """A running answer and the candidate rows gathered for it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.tokens: list[int] = []
        self.ids: list[Tensor] = []
        self.logprobs: list[Tensor] = []
        self.features: list[Tensor] = []

    def add(self, token: int, ids: Tensor, logprobs: Tensor, features: Tensor | None) -> None:
        """`features`: of the rows that the token was drawn behind."""
        self.tokens.append(token)
        self.ids.append(ids)
        self.logprobs.append(logprobs)
        if features is not None:
            self.features.append(features)

    def ended(self, settings: WriterSettings, max_len: int) -> bool:
        num = len(self.tokens)
        if self.tokens[-1] in settings.stop_ids or num >= self.job.max_new:
            return True
        if len(self.job.prompt) + num >= max_len - 1:
            return True
        return settings.cut_loops and num % 10 == 0 and loops(self.tokens)

    def written(self) -> Written:
        features = torch.cat(self.features) if self.features else None
        ids, logprobs = torch.stack(self.ids), torch.stack(self.logprobs)
        return Written(self.job, self.tokens, ids, logprobs, features)


@dataclass(frozen=True)
class WriterSettings:
    """What is drawn from and what is kept.

    num_top candidates are kept, num_candidates drawn from; a refill waits for min_refill free
    slots, so that prefills share their matrix products.
    """

    stop_ids: frozenset[int]
    num_top: int = 16
    num_candidates: int = 48
    min_refill: int = 4
    cut_loops: bool = True
    seed: int = 0


class _Writer:
    """The slots of one teacher and what runs in them."""

    def __init__(self, teacher: Teacher, settings: WriterSettings) -> None:
        self.teacher, self.settings = teacher, settings
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.slots: list[_Slot | None] = [None] * teacher.num_slots
        self.current = torch.zeros(teacher.num_slots, dtype=torch.int64, device=teacher.device)

    @property
    def free(self) -> list[int]:
        """Slots without a running answer."""
        return [i for i, slot in enumerate(self.slots) if slot is None]

    def start(self, jobs: list[Job]) -> Iterator[Written]:
        """Prefill the jobs into free slots and draw their first tokens."""
        taken = self.free[: len(jobs)]
        for slot_id, job in zip(taken, jobs, strict=True):
            self.slots[slot_id] = _Slot(job)
        yield from self.take(taken, self.teacher.prefill(taken, [job.prompt for job in jobs]))

    def step(self) -> Iterator[Written]:
        """One token for every running answer."""
        self.teacher.park(self.free)
        passed = self.teacher.decode(self.current)
        yield from self.take(list(range(len(self.slots))), passed)

    def take(self, slot_ids: list[int], passed: Passed) -> Iterator[Written]:
        """Draw one token for each of the slots (rows of logits, in order)."""
        device, keep = self.teacher.device, self.settings.num_top
        logprobs, ids = top_logprobs(passed.logits, self.settings.num_candidates)
        heat = [s.job.temperature if (s := self.slots[i]) else 0.0 for i in slot_ids]
        tokens = draw(ids, logprobs, torch.tensor(heat, device=device), self.generator)
        self.current[torch.tensor(slot_ids, device=device)] = tokens
        host_ids, host_logprobs = ids[:, :keep].cpu(), logprobs[:, :keep].cpu()
        for row, (slot_id, token) in enumerate(zip(slot_ids, tokens.tolist(), strict=True)):
            slot = self.slots[slot_id]
            if slot is None:
                continue
            features = passed.features[row] if passed.features else None
            slot.add(token, host_ids[row], host_logprobs[row], features)
            if slot.ended(self.settings, self.teacher.max_len):
                self.slots[slot_id] = None
                yield slot.written()


def write(
    teacher: Teacher,
    jobs: Iterator[Job],
    settings: WriterSettings,
    keep_going: Callable[[], bool] = lambda: True,
) -> Iterator[Written]:
    """Run the jobs through the teacher's slots; yields answers as they finish.

    When `keep_going` says no, running answers are finished and no new ones are started.
    """
    writer = _Writer(teacher, settings)
    more = True
    min_refill = min(settings.min_refill, teacher.num_slots)
    while True:
        num_free = len(writer.free)
        more = more and keep_going()
        if more and num_free >= min_refill:
            started = list(itertools.islice(jobs, num_free))
            more = len(started) == num_free
            if started:
                yield from writer.start(started)
        if len(writer.free) < teacher.num_slots:
            yield from writer.step()
        elif not more:
            return
