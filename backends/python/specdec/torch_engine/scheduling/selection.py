"""The selection of rows for the next pass.

Running streams come first, so that none waits for another request's prompt. Prompts share the rows
that Pace allows. If there are several, the one with the fewest rows left gets up to half of them.
The others get the rest, the oldest first. So neither a short nor an old prompt waits for the
other's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdec.torch_engine.model import Segment
from specdec.torch_engine.scheduling.pace import Pace
from specdec.torch_engine.scheduling.running import RunningTask

Chunk = tuple[RunningTask, Segment]


def select(running: Sequence[RunningTask], pace: Pace, max_rows: int) -> Iterator[Chunk]:
    """Yield each task of the next pass with its rows, at most `max_rows` rows in all.

    `running` holds all running tasks, oldest first. A task without pending rows is left out: it
    waits for other paths of its tree.
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
    """Yield the next rows of the tasks in their order, at most `num_rows` rows in all."""
    for each in tasks:
        if num_rows == 0:
            return
        chunk = each.chunk(num_rows)
        num_rows -= len(chunk.tokens)
        yield each, chunk
