"""The drafting head's part of a pass: it reads the confirmed rows and proposes draft tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from specdec.acceptance.exact import Verdict
from specdec.torch_engine.heads.interface import HeadProposal, Reading
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.scheduling.running import RunningTask


def readings_of(
    chunks: Sequence[tuple[RunningTask, Segment]],
    hidden: Tensor,
    states: Sequence[Tensor],
    verdicts: Mapping[RunningTask, Verdict],
) -> dict[RunningTask, Reading]:
    """Return what the head can read in this pass: the confirmed rows of each task that uses it.

    `hidden` [asked, hidden] float32 are the asked rows of all chunks after the final norm, in
    order. `states` holds [rows, taps, hidden] float32 for each chunk. Once a tree is verified, the
    head reads only the path with the most accepted tokens.
    """
    readings: dict[RunningTask, Reading] = {}
    answering = _answering(verdicts)
    num_asked = 0
    for (running, segment), own in zip(chunks, states, strict=True):
        task, sequence = running.task, segment.sequence
        start = sequence.length - len(segment.tokens)
        first_asked, num_asked = num_asked, num_asked + segment.num_logits
        # The head must read all positions in order, so it stops reading this sequence at a gap. A
        # later task that needs the positions computes them again.
        if task.num_next is None or sequence.num_read < start:
            continue
        verdict = verdicts.get(running)
        if verdict is None:
            # Draft tokens are not confirmed yet, so rows that reach into a draft are not read.
            if sequence.length <= len(task.input_ids):
                readings[running] = Reading(task, sequence, start, own, None, running.tokens, 0)
            continue
        num_kept = len(segment.tokens) - len(task.draft_ids) + verdict.num_accepted
        # num_kept < 1: the last confirmed row already ran in an earlier pass.
        if running not in answering or num_kept < 1:
            continue
        last_asked = first_asked + segment.num_logits - len(task.draft_ids) - 1
        context = running.tokens[: start + num_kept + 1].copy()
        context[start + num_kept] = verdict.tokens[verdict.num_accepted]
        last = hidden[last_asked + verdict.num_accepted]
        num_draft_tokens = _num_draft_tokens(running, verdict)
        readings[running] = Reading(
            task,
            sequence,
            start,
            own[:num_kept],
            last,
            context,
            num_draft_tokens,
            task.next_depth,
        )
    return readings


@torch.inference_mode()
def read(
    model: LlamaModel, readings: Mapping[RunningTask, Reading]
) -> dict[RunningTask, HeadProposal]:
    """Let the head read the rows; return its proposal for each task.

    The proposal is empty for a reading that wants no draft tokens.
    """
    if not readings:
        return {}
    head, cache = model.drafting_head, model.cache
    assert head is not None
    lengths = {running: reading.sequence.length for running, reading in readings.items()}
    # While it drafts, the head needs cache slots for the keys of its own draft tokens.
    for reading in readings.values():
        num_more = reading.end + reading.depth - 1 - reading.sequence.length
        if num_more > 0:
            cache.extend(reading.sequence, np.zeros(num_more, dtype=np.int32))
        reading.sequence.num_read = reading.end
    found = head.read([*readings.values()], cache)
    for running, reading in readings.items():
        cache.truncate(reading.sequence, lengths[running])
    return dict(zip(readings, found, strict=True))


def _answering(verdicts: Mapping[RunningTask, Verdict]) -> set[RunningTask]:
    """Return the tasks whose verdict is the answer to their caller.

    These are all tasks without a tree and, for each tree, the first path with the most accepted
    tokens.
    """
    best: dict[object, RunningTask] = {}
    for running, verdict in verdicts.items():
        branch = running.task.branch
        key = running if branch is None else branch.verifier
        if key not in best or verdict.num_accepted > verdicts[best[key]].num_accepted:
            best[key] = running
    return set(best.values())


def _num_draft_tokens(running: RunningTask, verdict: Verdict) -> int:
    """Return how many draft tokens the head should propose after this verdict.

    It is 0 after the end token, and 0 if the task itself generates the next token.
    """
    task = running.task
    num_tokens = running.num_generated + len(verdict.tokens)
    is_last = len(task.draft_ids) > 0 or num_tokens >= task.max_new_tokens
    if not is_last or (task.end_id is not None and task.end_id in verdict.tokens):
        return 0
    return task.num_next or 0
