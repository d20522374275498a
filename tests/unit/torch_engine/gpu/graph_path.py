"""Helpers to test the CUDA decoder, on a GPU or the CPU: a scheduler, and tasks of many shapes."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import torch

from specdec.acceptance.sampling import SamplingParams
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduling.scheduler import Scheduler
from specdec.torch_engine.task import Task
from tests.unit.torch_engine.by_hand import ids, prompt, run, task

NUM_CACHE_TOKENS = 32 * 256

VERIFYING = EngineLimits(
    max_seq_len=1024,
    max_draft_len=16,
    max_num_tokens=128,
    max_num_sequences=16,
    num_cache_tokens=NUM_CACHE_TOKENS,
)
DRAFTING = replace(VERIFYING, max_draft_len=0)

SAMPLED = SamplingParams(temperature=0.8, seed=2**63 + 11)
NUCLEUS = SamplingParams(temperature=0.9, top_k=40, top_p=0.9, min_p=0.01, seed=12)


_captured: WeakKeyDictionary[KVCache, EngineLimits] = WeakKeyDictionary()
"""For each cache, the limits for which its graphs were captured."""


def new_scheduler(model: LlamaModel, limits: EngineLimits) -> Scheduler:
    """Return a scheduler with an empty cache, and with graphs if the model has them.

    For the same limits, graphs are captured once and used again, because capturing takes most of a
    test's time on CUDA.
    """
    if _captured.get(model.cache) != limits:
        dtype = model.cache.storage.dtype
        model.cache = KVCache(model.config, limits.num_cache_tokens, model.device, dtype)
        model.prepare(limits)
        _captured[model.cache] = limits
    empty(model.cache)
    return Scheduler(model, limits)


def empty(cache: KVCache) -> None:
    """Discard all sequences. The blocks keep their old values, which no later task may read."""
    for sequence in list(cache._sequences):
        cache.discard(sequence)


def tokens_of(model: LlamaModel, tasks: list[Task], limits: EngineLimits = VERIFYING):
    """Run the tasks together; return the tokens of each."""
    return [each.tokens for each in run(new_scheduler(model, limits), tasks)]


def run_single(model: LlamaModel, tasks: list[Task], limits: EngineLimits = VERIFYING):
    """Run each task by itself, with an empty cache; return the tokens of each."""
    return [tokens_of(model, [each], limits)[0] for each in tasks]


def mixed_tasks() -> list[Task]:
    """Return 16 tasks with different prompts and drafts, some greedy and some sampled.

    Prompts have 1 to 513 tokens, with lengths around the ends of cache blocks (256 tokens). Drafts
    have 0 to 16 tokens.
    """
    lengths = (1, 2, 17, 63, 200, 254, 255, 256, 257, 300, 510, 511, 512, 513, 40, 5)
    drafts = (0, 1, 2, 3, 4, 5, 8, 16, 0, 1, 0, 4, 0, 0, 15, 0)
    tasks = []
    for number, (length, count) in enumerate(zip(lengths, drafts, strict=True)):
        base = task(prompt(length), count + 1 if count else 12, prompt(count, seed=length))
        params = (base.params, SAMPLED, base.params, NUCLEUS)[number % 4]
        tasks.append(replace(base, params=params, num_prompt_tokens=length))
    return tasks


def calls_of_a_draft(num_tokens: int, count: int, params: SamplingParams) -> list[Task]:
    """Return `count` tasks of `num_tokens` tokens each, after prompts of different lengths."""
    return [
        Task(str(n), ids(prompt(3 + 50 * n, seed=n)), num_tokens, params=params)
        for n in range(count)
    ]


def step_by_step(monkeypatch: object, model: LlamaModel) -> None:
    """Make the model run one pass for each token, without chained steps."""
    monkeypatch.setattr(type(model), "has_chained_steps", property(lambda _: False))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a float32 tensor as int32, to compare them exactly."""
    return tensor.view(torch.int32)
