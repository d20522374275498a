"""When running tasks may generate several tokens without a look at any."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.torch_engine.gpu.buckets import SHORT_ROWS
from specdec.torch_engine.gpu.device_sampler import is_direct, is_truncated
from specdec.torch_engine.gpu.leap import MAX_SEQUENCES, MAX_STEPS
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.running import RunningTask
from specdec.torch_engine.task import Task


def num_tokens_at_once(model: LlamaModel, tasks: Sequence[RunningTask], max_rows: int) -> int:
    """How many tokens each of all running tasks can get in one go; 1 where one is to look.

    Only calls that ask for a few tokens leap, as draft engines' do: a long answer is read token by
    token, and a leap would keep another call from starting meanwhile. An end token inside a leap
    costs the steps behind it and changes nothing.
    """
    if not model.leaps or not 0 < len(tasks) <= MAX_SEQUENCES:
        return 1
    if sum(len(running.pending) for running in tasks) > max_rows:
        return 1
    if not all(_is_short(running.task) and _is_ready(running) for running in tasks):
        return 1
    num_tokens = min(running.task.max_new_tokens - running.num_generated for running in tasks)
    longest = max(
        len(running.task.input_ids) + running.num_generated + num_tokens for running in tasks
    )
    return num_tokens if model.can_leap(len(tasks), longest) else 1


def _is_short(task: Task) -> bool:
    return task.max_new_tokens <= 1 + MAX_STEPS and not len(task.draft_ids) and task.branch is None


def _is_ready(running: RunningTask) -> bool:
    """Nearly all of the prompt is cached, and the draws are of the kind that the device chains."""
    (draw,) = running.draws(1)
    is_chained = draw.params.is_greedy or not is_truncated(draw.params)
    return 0 < len(running.pending) <= SHORT_ROWS and is_direct(draw) and is_chained
