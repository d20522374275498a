"""The decision on whether the next steps of the running tasks are chained.

In chained steps the device generates several tokens of each task before the host reads any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec.torch_engine.gpu.chained_steps import MAX_SEQUENCES, MAX_STEPS
from specdec.torch_engine.gpu.device_sampler import is_direct, is_truncated
from specdec.torch_engine.layers.attention import SHORT_ROWS
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduling.running import RunningTask
from specdec.torch_engine.task import Task


def num_tokens_at_once(model: LlamaModel, tasks: Sequence[RunningTask], max_rows: int) -> int:
    """Return how many tokens each running task can get in chained steps; 1 for an ordinary pass.

    `tasks` are all running tasks, and `max_rows` is the row limit of a pass. Only steps
    of calls for a few tokens are chained, such as the calls of draft engines. A long answer is
    streamed token by token, and chaining its steps would delay the start of other calls. Steps
    after an end token are wasted, but change nothing.
    """
    if not model.has_chained_steps or not 0 < len(tasks) <= MAX_SEQUENCES:
        return 1
    if sum(len(running.pending) for running in tasks) > max_rows:
        return 1
    if not all(_is_short(running.task) and _is_ready(running) for running in tasks):
        return 1
    num_tokens = min(running.task.max_new_tokens - running.num_generated for running in tasks)
    longest = max(
        len(running.task.input_ids) + running.num_generated + num_tokens for running in tasks
    )
    return num_tokens if model.can_chain_steps(len(tasks), longest) else 1


def _is_short(task: Task) -> bool:
    return task.max_new_tokens <= 1 + MAX_STEPS and not len(task.draft_ids) and task.branch is None


def _is_ready(running: RunningTask) -> bool:
    """Say whether nearly all of the context is cached and the device can draw token after token.

    The device can do so if the draws depend only on logits, temperature and seed.
    """
    (draw,) = running.draws(1)
    is_chained = draw.params.is_greedy or not is_truncated(draw.params)
    return 0 < len(running.pending) <= SHORT_ROWS and is_direct(draw) and is_chained
