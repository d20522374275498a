"""Answer requests: run their rounds, and send confirmed tokens and their text to the clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from specdec.drafting.names import ENGINE
from specdec.engines.protocol import TokenIds
from specdec.loop import Context, speculate, stream_target
from specdec.rounds import Round
from specdec.serving.job import Job
from specdec.serving.metrics.definitions import Counter, Histogram, MetricsSink
from specdec.serving.metrics.statistics import (
    RoundTimes,
    SpeculationSummary,
    summarize,
    summary_of,
)
from specdec.serving.outputs import Outputs, end_outputs, statistics_outputs, token_outputs
from specdec.serving.text.text_stream import Piece, TextStream, Token
from specdec.serving.text.tokenizing import Tokenizer

Send = Callable[[Outputs, bool], None]
"""Function that sends one response; its flag marks the last one."""

ROUND_DELAY_VARIABLE = "SPECDEC_INJECT_ROUND_DELAY_MS"
"""Environment variable with the milliseconds to wait after each round but the last. Tests use it to
check that performance gates and alerts notice slower rounds."""


@dataclass(slots=True)
class _Progress:
    """The progress of one answer: the rounds so far, and how many of their tokens were sent."""

    rounds: list[Round] = field(default_factory=list)
    num_sent: int = 0
    """Number of tokens sent."""
    first_sent_s: float | None = None
    """time.perf_counter() just after the first response was sent; None before."""
    first_round: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Clock readings in seconds at the end of the first round: time.perf_counter(), then the busy
    time of the draft engines and that of the target."""


class Answerer:
    """The part of the orchestrator that answers requests, each on a thread of its own.

    It waits `round_delay_s` seconds between the rounds of a request.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        metrics: MetricsSink,
        round_delay_s: float = 0.0,
    ) -> None:
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._round_delay_s = round_delay_s

    def answer(self, job: Job, send: Send) -> TokenIds:
        """Run the job and send its responses; return the prompt and all confirmed tokens.

        The result is [n] int32. It includes confirmed tokens that were not sent because of a stop
        word. Raises SpecdecError if the request fails; then no last response is sent.
        """
        request = job.request
        prompt = job.prompt
        self._metrics.add(Counter.prompt_tokens_total, len(prompt))
        text = self._text_stream(job)
        progress = _Progress()
        head = "" if request.exclude_input_in_output else self._tokenizer.text(prompt)
        unsent: list[Piece] = [Piece(head, ())] if head else []

        context = Context(prompt, request.max_tokens)
        with closing(self._rounds(context, job)) as rounds:
            for confirmed in rounds:
                progress.rounds.append(confirmed)
                if len(progress.rounds) == 1:
                    progress.first_round = _clock_readings(job)
                self._count_round(confirmed, job)
                unsent.append(text.push(_tokens_of(confirmed)))
                is_last = confirmed.ended or text.stopped or not context.num_left
                if is_last:
                    break
                if request.stream and any(piece.tokens for piece in unsent):
                    self._send(send, unsent, job, progress)
                    unsent = []
        unsent.append(text.finish())
        self._count_inside(job)
        ended = text.stopped or progress.rounds[-1].ended
        self._send(send, unsent, job, progress, "stop" if ended else "length")
        return context.tokens

    def _text_stream(self, job: Job) -> TextStream:
        words, special_texts = job.request.stop_words, self._tokenizer.special_texts
        if job.engines.decode is not None:
            return TextStream(job.engines.decode, words, special_texts=special_texts)
        decoder = self._tokenizer.decoder()
        return TextStream(decoder, words, rest=decoder.rest, special_texts=special_texts)

    def _rounds(self, context: Context, job: Job) -> Generator[Round]:
        """Yield the loop's rounds; before the first and after each, check if the request may go on.

        Raises the SpecdecError by which the request must end.
        """
        if job.engines.drafter is None:
            rounds = stream_target(context, job.engines.target)
        else:
            rounds = speculate(context, job.engines.target, job.engines.drafter)
        job.in_flight.check()
        with closing(rounds):
            for confirmed in rounds:
                job.in_flight.check()
                yield confirmed
                if self._round_delay_s:
                    time.sleep(self._round_delay_s)

    def _count_round(self, confirmed: Round, job: Job) -> None:
        self._metrics.observe(Histogram.target_step_seconds, confirmed.target_s)
        if confirmed.drafter is not None:
            task, drafter, drafted = job.task_label, confirmed.drafter, confirmed.num_drafted
            self._metrics.observe(Histogram.draft_step_seconds, confirmed.draft_s)
            self._metrics.add(Counter.num_drafts_total, task=task, drafter=drafter)
            self._metrics.add(Counter.num_draft_tokens_total, drafted, task=task, drafter=drafter)

    def _count_inside(self, job: Job) -> None:
        if job.engines.counts is not None:
            counts, labels = job.engines.counts, {"task": job.task_label, "drafter": ENGINE}
            self._metrics.add(Counter.num_draft_tokens_total, counts.num_draft_tokens, **labels)
            self._metrics.add(
                Counter.num_accepted_tokens_total, counts.num_accepted_tokens, **labels
            )

    def _send(
        self,
        send: Send,
        pieces: list[Piece],
        job: Job,
        progress: _Progress,
        finish_reason: str | None = None,
    ) -> None:
        tokens = [token for piece in pieces for token in piece.tokens]
        text = "".join(piece.text for piece in pieces)
        outputs = token_outputs(text, tokens, has_log_probs=job.request.return_log_probs)
        progress.num_sent += len(tokens)
        if finish_reason is not None:
            outputs |= end_outputs(job, progress.num_sent, finish_reason)
            if job.request.return_perf_metrics:
                times = _round_times(job, progress)
                outputs |= statistics_outputs(job, _summary_of(job, progress), times)
        send(outputs, finish_reason is not None)

        now_s = time.perf_counter()
        self._count_sent(tokens, job)
        if progress.first_sent_s is None:
            progress.first_sent_s = now_s
            self._metrics.observe(Histogram.time_to_first_token_seconds, now_s - job.arrival_s)
        if finish_reason is not None:
            self._metrics.observe(Histogram.e2e_request_latency_seconds, now_s - job.arrival_s)
            if progress.num_sent > 1 and job.request.stream:
                gap_s = (now_s - progress.first_sent_s) / (progress.num_sent - 1)
                self._metrics.observe(Histogram.inter_token_latency_seconds, gap_s)

    def _count_sent(self, tokens: list[Token], job: Job) -> None:
        self._metrics.add(Counter.generation_tokens_total, len(tokens), task=job.task_label)
        for token in tokens:
            if token.drafter is not None:
                self._metrics.add(
                    Counter.num_accepted_tokens_total, task=job.task_label, drafter=token.drafter
                )
                self._metrics.add(
                    Counter.num_accepted_tokens_per_pos_total,
                    drafter=token.drafter,
                    position=str(token.position),
                )


def _summary_of(job: Job, progress: _Progress) -> SpeculationSummary:
    if job.engines.counts is None:
        return summarize(progress.rounds, progress.num_sent)
    return summary_of(ENGINE, job.engines.counts)


def _clock_readings(job: Job) -> tuple[float, float, float]:
    return time.perf_counter(), job.draft_clock.busy_s, job.target_clock.busy_s


def _round_times(job: Job, progress: _Progress) -> RoundTimes:
    now = _clock_readings(job)
    total_s, draft_engine_s, target_engine_s = (
        after - before for after, before in zip(now, progress.first_round, strict=True)
    )
    later = progress.rounds[1:]
    return RoundTimes(
        num_rounds=len(later),
        total_s=total_s,
        draft_s=sum(each.draft_s for each in later),
        target_s=sum(each.target_s for each in later),
        draft_engine_s=draft_engine_s,
        target_engine_s=target_engine_s,
    )


def _tokens_of(confirmed: Round) -> Iterator[Token]:
    for position, (token, source) in enumerate(
        zip(confirmed.tokens, confirmed.sources, strict=True)
    ):
        log_prob = confirmed.log_probs[position] if confirmed.log_probs else None
        yield Token(token, source, position, confirmed.drafter if source else None, log_prob)
