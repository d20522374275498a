"""The state of a task in the engine: the tokens that still have to run, and its results."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from specdec.acceptance.sampling import Draw
from specdec.token_ids import TokenIds
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache
from specdec.torch_engine.model import Segment
from specdec.torch_engine.sampler import DrawnToken
from specdec.torch_engine.task import NO_TOKENS, Receiver, Task, TaskStats

NUM_ROUND_TOKENS = 8
"""Largest number of uncached context tokens in a call of a running stream: those that its last
round confirmed. Nearly all prompts are longer, which tells the two apart."""


@dataclass(eq=False, slots=True)
class RunningTask:
    """A task that waits or runs, with its tokens, results and reservations."""

    task: Task
    receive: Receiver
    stats: TaskStats
    num_blocks: int
    """Cache blocks that are reserved for the task."""
    tokens: TokenIds
    """[input + draft + max_new_tokens] int32: a buffer for the input and the draft or the generated
    tokens after it."""
    is_admitted: bool = False
    """Whether the task was admitted and holds its reservations."""
    sequence: CachedSequence | None = None
    """The task's tokens in the KV cache; None until the task is started."""
    pending: TokenIds = field(default_factory=lambda: NO_TOKENS)
    """[n] int32: the tokens that still have to run through the model."""
    num_asked: int = 1
    """Rows at the end of `pending` after which a token is to be drawn."""
    drawn: list[DrawnToken] = field(default_factory=list)
    """The tokens drawn since the last output; with a draft, one for each asked row that has run."""
    num_generated: int = 0
    """Tokens handed out so far."""

    def start(self, cache: KVCache) -> None:
        """Take the longest cached prefix; the rest of the context and the draft are then pending.

        Raises MemoryError if the cache has no block for a copy.
        """
        task = self.task
        is_read = task.num_next is not None
        self.sequence = cache.acquire(task.input_ids, is_read=is_read, salt=task.cache_salt)
        self.stats.num_reused_blocks = len(self.sequence.blocks)
        self.stats.first_scheduled_ns = time.monotonic_ns()
        self.pending = np.concatenate((task.input_ids[self.sequence.length :], task.draft_ids))
        self.num_asked = 1 + len(task.draft_ids)

    def end(self, cache: KVCache, *, is_failed: bool) -> None:
        """Leave the sequence to the cache, or discard it if the task has failed."""
        if self.sequence is None:
            return
        self.stats.num_new_blocks = len(self.sequence.blocks) - self.stats.num_reused_blocks
        if is_failed:
            # The failed pass may have written only some of the keys and values.
            cache.discard(self.sequence, is_failed=True)
            return
        cache.release(self.sequence)
        if self.task.branch is not None:
            cache.drop_copies(self.sequence)

    def is_path_beside(self, other: RunningTask) -> bool:
        """Return whether both are paths of the same tree."""
        own, others = self.task.branch, other.task.branch
        return own is not None and others is not None and own.verifier is others.verifier

    @property
    def is_prompt(self) -> bool:
        """Whether the task is reading a prompt: more tokens are pending than a round leaves."""
        return len(self.pending) > NUM_ROUND_TOKENS + len(self.task.draft_ids)

    def chunk(self, budget: int) -> Segment:
        """Return the next rows to run, at most `budget` of them."""
        assert self.sequence is not None
        size = min(len(self.pending), budget)
        num_left = len(self.pending) - size
        num_logits = max(0, min(size, self.num_asked - num_left))
        return Segment(self.sequence, self.pending[:size], num_logits)

    def draws(self, count: int) -> list[Draw]:
        """Return the next `count` draws.

        The context of each draw includes all draft tokens before its position.
        """
        task = self.task
        keeps_logits = task.wants_logits or task.verifies_by_probability
        num_input = len(task.input_ids)
        start = num_input + self.num_generated + len(self.drawn)
        # The sampler skips draws after a rejected draft token, unless all distributions are wanted.
        draft_tokens = [] if keeps_logits else task.draft_ids[start - num_input :].tolist()
        draft_tokens += [None] * count
        return [
            Draw(
                task.params,
                self.tokens[: start + offset],
                task.num_prompt_tokens,
                task.end_id,
                task.wants_log_probs,
                keeps_logits,
                draft_tokens[offset],
                task.banned,
                task.constraint,
            )
            for offset in range(count)
        ]


def tokens_needed(task: Task) -> int:
    """Return how many tokens a task may hold in the KV cache, the head's proposal included."""
    num_proposed = task.num_next or 0
    return len(task.input_ids) + len(task.draft_ids) + task.max_new_tokens + num_proposed
