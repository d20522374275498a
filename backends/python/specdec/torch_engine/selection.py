"""Selects the rows of the next pass.

Running streams come first, so that none waits for another request's prompt. Prompts share the rows
that Pace allows: the one with the fewest rows left gets half of them, and the oldest the
rest, so that neither waits for all of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdec.torch_engine.model import Segment
from specdec.torch_engine.pace import Pace
from specdec.torch_engine.running import RunningTask

Chunk = tuple[RunningTask, Segment]


def select(running: Sequence[RunningTask], pace: Pace, max_rows: int) -> Iterator[Chunk]:
    """Yield each task that takes part in the next pass with its rows, `max_rows` in all at most.

    `running`: all running tasks, oldest first. A task without pending rows waits for other paths
    of its tree.
    """
    unfinished = [each for each in running if len(each.pending)]
    streams = [each for each in unfinished if not each.is_prompt]
    prompts = [each for each in unfinished if each.is_prompt]
    num_left = pace.max_rows(max_rows)
    for each, chunk in _in_order(streams, num_left):
        num_left -= len(chunk.tokens)
        yield each, chunk
    if not prompts or not num_left:
        return
    num_left = pace.max_prompt_rows(has_streams=bool(streams), limit=num_left)
    if len(prompts) > 1:
        shortest = min(prompts, key=lambda each: len(each.pending))
        prompts.remove(shortest)
        for each, chunk in _in_order([shortest], num_left // 2):
            num_left -= len(chunk.tokens)
            yield each, chunk
    yield from _in_order(prompts, num_left)


def _in_order(tasks: Sequence[RunningTask], num_rows: int) -> Iterator[Chunk]:
    """Yield the tasks' next rows, the first task's first, until `num_rows` are given out."""
    for each in tasks:
        if num_rows == 0:
            return
        chunk = each.chunk(num_rows)
        num_rows -= len(chunk.tokens)
        yield each, chunk
