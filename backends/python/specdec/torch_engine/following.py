"""The drafting head's part of a pass: it reads the rows that stand, and guesses what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from specdec.acceptance.exact import Verdict
from specdec.torch_engine.heads.reading import Guesses, Reading
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.running import RunningTask


def readings_of(
    chunks: Sequence[tuple[RunningTask, Segment]],
    hidden: Tensor,
    states: Sequence[Tensor],
    verdicts: Mapping[RunningTask, Verdict],
) -> dict[RunningTask, Reading]:
    """The rows that stand of each task that the head follows.

    `hidden` [asked, hidden]: the rows behind the final norm of all chunks, in order; `states`: of
    each chunk's rows. Of a tree, the path that carries the answer is read alone.
    """
    readings: dict[RunningTask, Reading] = {}
    answering = _answering(verdicts)
    num_asked = 0
    for (running, segment), own in zip(chunks, states, strict=True):
        task, sequence = running.task, segment.sequence
        start = sequence.length - len(segment.tokens)
        first_asked, num_asked = num_asked, num_asked + segment.num_logits
        # What is not read in order cannot be read: the next request computes it anew.
        if task.num_next is None or sequence.num_read < start:
            continue
        verdict = verdicts.get(running)
        if verdict is None:
            if sequence.length <= len(task.input_ids):  # No draft among the rows.
                readings[running] = Reading(task, sequence, start, own, None, running.text, 0)
            continue
        num_kept = len(segment.tokens) - len(task.draft_ids) + verdict.num_accepted
        if running not in answering or num_kept < 1:  # Or its last row ran in an earlier pass.
            continue
        last_asked = first_asked + segment.num_logits - len(task.draft_ids) - 1
        text = running.text[: start + num_kept + 1].copy()
        text[start + num_kept] = verdict.tokens[verdict.num_accepted]
        last = hidden[last_asked + verdict.num_accepted]
        num_guesses = _num_guesses(running, verdict)
        readings[running] = Reading(
            task, sequence, start, own[:num_kept], last, text, num_guesses, task.next_depth
        )
    return readings


@torch.inference_mode()
def read(model: LlamaModel, readings: Mapping[RunningTask, Reading]) -> dict[RunningTask, Guesses]:
    """The head's guesses for each."""
    if not readings:
        return {}
    head, cache = model.drafting_head, model.cache
    assert head is not None
    lengths = {running: reading.sequence.length for running, reading in readings.items()}
    for reading in readings.values():  # Guesses stand in the cache until the next round.
        num_more = reading.end + reading.depth - 1 - reading.sequence.length
        if num_more > 0:
            cache.extend(reading.sequence, np.zeros(num_more, dtype=np.int32))
        reading.sequence.num_read = reading.end
    found = head.read([*readings.values()], cache)
    for running, reading in readings.items():
        cache.truncate(reading.sequence, lengths[running])
    return dict(zip(readings, found, strict=True))


def _answering(verdicts: Mapping[RunningTask, Verdict]) -> set[RunningTask]:
    """All but the paths of a tree that another path goes further than, or as far as."""
    best: dict[object, RunningTask] = {}
    for running, verdict in verdicts.items():
        branch = running.task.branch
        key = running if branch is None else branch.judge
        if key not in best or verdict.num_accepted > verdicts[best[key]].num_accepted:
            best[key] = running
    return set(best.values())


def _num_guesses(running: RunningTask, verdict: Verdict) -> int:
    """None behind the end, nor where the task goes on by itself."""
    task = running.task
    num_tokens = running.num_generated + len(verdict.tokens)
    is_last = len(task.draft_ids) > 0 or num_tokens >= task.max_new_tokens
    if not is_last or (task.end_id is not None and task.end_id in verdict.tokens):
        return 0
    return task.num_next or 0
