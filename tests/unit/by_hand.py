"""A scheduler over a tiny random Llama, driven by hand."""

from __future__ import annotations

import numpy as np
import torch

from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.kv_cache import KVCache
from specdec.torch_engine.scheduler import Scheduler
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
    """Return a scheduler whose cache is empty."""
    size = model.cache.block_size
    model.cache = KVCache(model.config, num_cache_tokens, CPU, block_size=size)
    return Scheduler(model, limits)


def ids(tokens):
    """Return token ids."""
    return np.asarray(tokens, dtype=np.int32)


def prompt(length, seed=0):
    """Return a random prompt."""
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
    """Run tasks to their ends; return their receivers, in order."""
    receivers = [Receiver() for _ in tasks]
    for task, receiver in zip(tasks, receivers, strict=True):
        scheduler.add([task], receiver)
    while scheduler.has_work:
        scheduler.step()
    assert all(receiver.is_done for receiver in receivers)
    scheduler.check_integrity()
    return receivers


def alone(model, task):
    """Run one task on an engine that never saw another."""
    return run(new_scheduler(model), [task])[0]


def task(tokens, max_new_tokens=12, draft=(), end_id=None, request_id="r"):
    """Return a task."""
    return Task(request_id, ids(tokens), max_new_tokens, ids(draft), end_id)
