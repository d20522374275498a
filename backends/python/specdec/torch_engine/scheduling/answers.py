"""The outputs of tasks: confirmed tokens with what their caller asked for."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.acceptance.exact import Verdict
from specdec.torch_engine.heads.interface import NO_HEAD_PROPOSAL, HeadProposal
from specdec.torch_engine.sampler import DrawnToken
from specdec.torch_engine.scheduling.running import RunningTask
from specdec.torch_engine.task import TaskOutput


def has_end_token(running: RunningTask, verdict: Verdict) -> bool:
    """Return whether the end token is among the tokens that the task may still hand out."""
    return running.task.end_id is not None and running.task.end_id in _within(running, verdict)


def output_of(
    running: RunningTask, verdict: Verdict, drawn: Sequence[DrawnToken], proposal: HeadProposal
) -> TaskOutput:
    """Return the tokens of a verdict that precede the end token, and the head's proposal.

    `drawn` are the target's tokens in this verification. After the end token there is no proposal.
    """
    task, tokens = running.task, _within(running, verdict)
    if has_end_token(running, verdict):
        tokens = tokens[: tokens.index(task.end_id)]
        proposal = NO_HEAD_PROPOSAL
    return TaskOutput(
        tokens,
        tuple(
            each.log_prob(token)
            for each, token in zip(drawn, tokens, strict=False)
            if task.wants_log_probs
        ),
        tuple(
            each.logits.cpu().numpy()
            for each in drawn[: len(tokens)]
            if task.wants_logits and each.logits is not None
        ),
        *proposal,
        top_log_probs=tuple(
            each.top_log_probs(task.num_top_log_probs)
            for each in drawn[: len(tokens)]
            if task.num_top_log_probs
        ),
    )


def _within(running: RunningTask, verdict: Verdict) -> tuple[int, ...]:
    """Return the tokens of the verdict that `max_new_tokens` leaves room for."""
    return verdict.tokens[: running.task.max_new_tokens - running.num_generated]
