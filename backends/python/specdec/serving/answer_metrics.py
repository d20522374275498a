"""Count the rounds, tokens and times of one answer in the server's metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from specdec.drafting.names import ENGINE
from specdec.rounds import Round
from specdec.serving.job import Job
from specdec.serving.metrics.definitions import Counter, Histogram, MetricsSink
from specdec.serving.text.text_stream import Token


class AnswerMetrics:
    """The metrics of one answer; used by its request's thread only."""

    def __init__(self, metrics: MetricsSink, job: Job) -> None:
        """Count the prompt's tokens."""
        self._metrics = metrics
        self._job = job
        self._num_sent = 0
        self._first_sent_s: float | None = None
        """time.perf_counter() just after the first response was sent; None before."""
        metrics.add(Counter.prompt_tokens_total, len(job.prompt))

    def count_round(self, confirmed: Round) -> None:
        """Count a round and the draft tokens that were proposed in it."""
        metrics, task = self._metrics, self._job.task_label
        metrics.observe(Histogram.target_step_seconds, confirmed.target_s)
        if confirmed.drafter is not None:
            drafter, num_tokens = confirmed.drafter, confirmed.num_draft_tokens
            metrics.observe(Histogram.draft_step_seconds, confirmed.draft_s)
            metrics.add(Counter.num_drafts_total, task=task, drafter=drafter)
            metrics.add(Counter.num_draft_tokens_total, num_tokens, task=task, drafter=drafter)

    def count_inside(self) -> None:
        """Count the draft tokens of a target that speculates by itself."""
        if (counts := self._job.engines.counts) is not None:
            labels = {"task": self._job.task_label, "drafter": ENGINE}
            self._metrics.add(Counter.num_draft_tokens_total, counts.num_draft_tokens, **labels)
            self._metrics.add(
                Counter.num_accepted_tokens_total, counts.num_accepted_tokens, **labels
            )

    def count_sent(self, tokens: Sequence[Token], *, is_last: bool) -> None:
        """Count the tokens of a response that was just sent, and the times until then."""
        metrics, job, now_s = self._metrics, self._job, time.perf_counter()
        self._num_sent += len(tokens)
        metrics.add(Counter.generation_tokens_total, len(tokens), task=job.task_label)
        for token in tokens:
            if token.drafter is not None:
                drafter, position = token.drafter, str(token.position)
                metrics.add(Counter.num_accepted_tokens_total, task=job.task_label, drafter=drafter)
                metrics.add(
                    Counter.num_accepted_tokens_per_pos_total, drafter=drafter, position=position
                )
        if self._first_sent_s is None:
            self._first_sent_s = now_s
            metrics.observe(Histogram.time_to_first_token_seconds, now_s - job.arrival_s)
        if is_last:
            metrics.observe(Histogram.e2e_request_latency_seconds, now_s - job.arrival_s)
            if self._num_sent > 1 and job.request.stream:
                gap_s = (now_s - self._first_sent_s) / (self._num_sent - 1)
                metrics.observe(Histogram.inter_token_latency_seconds, gap_s)
