"""Helpers that run a scheduler over a tiny random Llama, pass by pass on the test's thread."""

from __future__ import annotations

import numpy as np
import torch

from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.scheduling.scheduler import Scheduler
from specdec.torch_engine.task import Task
from tests.unit.tiny_llama import VOCAB

NUM_CACHE_TOKENS = 8 * 256
LIMITS = EngineLimits(
    max_seq_len=1024,
    max_draft_len=8,
    max_num_tokens=64,
    max_num_sequences=6,
    num_cache_tokens=NUM_CACHE_TOKENS,
)
CPU = torch.device("cpu")


def new_scheduler(model, limits=LIMITS, num_cache_tokens=NUM_CACHE_TOKENS):
    """Return a scheduler over `model` on the CPU, and give the model a new, empty cache.

    `num_cache_tokens` is the size of the cache in tokens.
    """
    size = model.cache.block_size
    model.cache = KVCache(model.config, num_cache_tokens, CPU, block_size=size)
    return Scheduler(model, limits)


def ids(tokens):
    """Return token ids as an array [n] int32."""
    return np.asarray(tokens, dtype=np.int32)


def prompt(length, seed=0):
    """Return a random prompt [length] int32; equal arguments give equal prompts."""
    return np.random.default_rng([length, seed]).integers(1, VOCAB, length).astype(np.int32)


class Receiver:
    """Collects the outputs of one task."""

    def __init__(self):
        self.outputs = []

    def __call__(self, output):
        assert not self.is_done, "an output came after the last one"
        self.outputs.append(output)

    @property
    def is_done(self):
        return bool(self.outputs) and self.outputs[-1].is_final

    @property
    def tokens(self):
        return [token for output in self.outputs for token in output.tokens]

    @property
    def stats(self):
        return self.outputs[-1].stats


def run(scheduler, tasks):
    """Run the tasks together until all of them have ended; return their receivers in order.

    Check the scheduler's integrity at the end.
    """
    receivers = [Receiver() for _ in tasks]
    for task, receiver in zip(tasks, receivers, strict=True):
        scheduler.add([task], receiver)
    while scheduler.has_work:
        scheduler.step()
    assert all(receiver.is_done for receiver in receivers)
    scheduler.check_integrity()
    return receivers


def run_single(model, task):
    """Run one task on a new scheduler with an empty cache; return its receiver."""
    return run(new_scheduler(model), [task])[0]


def task(tokens, max_new_tokens=12, draft=(), end_id=None, request_id="r"):
    """Return a task that generates tokens, or that verifies `draft` if there is one."""
    return Task(request_id, ids(tokens), max_new_tokens, ids(draft), end_id)
