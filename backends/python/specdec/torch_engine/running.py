"""A task on its way through passes: what has still to run, and what has come of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.acceptance.sampling import Draw
from specdec.torch_engine.kv_cache import CachedSequence, TokenIds
from specdec.torch_engine.model import Segment
from specdec.torch_engine.sampler import Choice
from specdec.torch_engine.task import NO_TOKENS, Receiver, Task, TaskStats

NUM_ROUND_TOKENS = 8
"""Context tokens that a stream's next call leaves to compute, at most: those that its last round
confirmed. Hardly a prompt is as short."""


@dataclass(eq=False, slots=True)
class RunningTask:
    """A task on its way; `pending` tokens still have to run through the model."""

    task: Task
    receive: Receiver
    stats: TaskStats
    num_blocks: int
    text: TokenIds
    """Input, then drafts or what is generated: a buffer for all that may come."""
    sequence: CachedSequence | None = None
    pending: TokenIds = field(default_factory=lambda: NO_TOKENS)
    num_asked: int = 1
    """Rows at the end of `pending` whose next token is wanted."""
    choices: list[Choice] = field(default_factory=list)
    num_generated: int = 0
    is_round: bool = False
    """It has waited before answers that have not begun."""

    @property
    def is_prompt(self) -> bool:
        """More is pending than the next call of a running stream leaves to compute."""
        return len(self.pending) > NUM_ROUND_TOKENS + len(self.task.draft_ids)

    def chunk(self, budget: int) -> Segment:
        """The next rows to run, `budget` at most."""
        assert self.sequence is not None
        size = min(len(self.pending), budget)
        num_left = len(self.pending) - size
        num_logits = max(0, min(size, self.num_asked - num_left))
        return Segment(self.sequence, self.pending[:size], num_logits)

    def draws(self, count: int) -> list[Draw]:
        """The next `count` tokens to draw: each behind the drafts before it."""
        task = self.task
        keeps_logits = task.wants_logits or task.is_judged
        num_input = len(task.input_ids)
        start = num_input + self.num_generated + len(self.choices)
        # Behind a wrong guess nothing needs to be drawn, unless all laws are wanted.
        guesses = [] if keeps_logits else task.draft_ids[start - num_input :].tolist()
        guesses += [None] * count
        return [
            Draw(
                task.params,
                self.text[: start + offset],
                task.num_prompt_tokens,
                task.end_id,
                task.wants_log_probs,
                keeps_logits,
                guesses[offset],
                task.banned,
            )
            for offset in range(count)
        ]


def tokens_needed(task: Task) -> int:
    """What a task may grow to in the KV cache."""
    num_guesses = task.num_next or 0
    return len(task.input_ids) + len(task.draft_ids) + task.max_new_tokens + num_guesses
