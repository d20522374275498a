"""Answer requests: run their rounds, and send confirmed tokens and their text to the clients."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from specdec.drafting.names import ENGINE
from specdec.errors import ConfigurationError
from specdec.loop import Context, speculate, stream_target
from specdec.rounds import Round
from specdec.serving.answer_metrics import AnswerMetrics
from specdec.serving.job import Job
from specdec.serving.metrics.definitions import MetricsSink
from specdec.serving.metrics.statistics import (
    RoundTimes,
    SpeculationSummary,
    summarize,
    summary_of,
)
from specdec.serving.outputs import (
    Outputs,
    end_outputs,
    first_outputs,
    log_prob_outputs,
    statistics_outputs,
    token_outputs,
    top_log_prob_outputs,
)
from specdec.serving.text.text_stream import Piece, TextStream, Token
from specdec.serving.text.tokenizing import Tokenizer
from specdec.token_ids import TokenIds

Send = Callable[[Outputs, bool], None]
"""Function that sends one response; its flag marks the last one."""

ROUND_DELAY_VARIABLE = "SPECDEC_INJECT_ROUND_DELAY_MS"
"""Environment variable with the milliseconds to wait after each round but the last. Tests use it to
check that performance gates and alerts notice slower rounds."""


def read_round_delay_s() -> float:
    """Return the delay in ROUND_DELAY_VARIABLE, in seconds.

    Raises ConfigurationError if the variable is no number.
    """
    given = os.environ.get(ROUND_DELAY_VARIABLE, "0")
    try:
        return float(given) / 1000
    except ValueError:
        raise ConfigurationError(
            f"{ROUND_DELAY_VARIABLE} must be a number of milliseconds; given {given!r}"
        ) from None


@dataclass(slots=True)
class _Progress:
    """The progress of one answer: the rounds so far, and how many of their tokens were sent."""

    rounds: list[Round] = field(default_factory=list)
    num_sent: int = 0
    """Number of tokens sent."""
    has_sent: bool = False
    """Whether a response was sent."""
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
        metrics = AnswerMetrics(self._metrics, job)
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
                metrics.count_round(confirmed)
                unsent.append(text.push(_tokens_of(confirmed)))
                is_last = confirmed.ended or text.stopped or not context.num_left
                if is_last:
                    break
                if confirmed.is_followed or not request.stream:
                    continue
                if any(piece.tokens for piece in unsent):
                    self._send(send, unsent, job, progress, metrics)
                    unsent = []
        unsent.append(text.finish())
        metrics.count_inside()
        ended = text.stopped or progress.rounds[-1].ended
        self._send(send, unsent, job, progress, metrics, "stop" if ended else "length")
        return context.tokens

    def _text_stream(self, job: Job) -> TextStream:
        request, special_texts = job.request, self._tokenizer.special_texts
        words, ids = request.stop_words, request.stop_token_ids
        if job.engines.decode is not None:
            return TextStream(job.engines.decode, words, ids, special_texts=special_texts)
        decoder = self._tokenizer.decoder(skips_special=request.skip_special_tokens)
        if not request.skip_special_tokens:
            special_texts = {}  # The decoder gives their names.
        return TextStream(decoder, words, ids, rest=decoder.rest, special_texts=special_texts)

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

    def _send(
        self,
        send: Send,
        pieces: list[Piece],
        job: Job,
        progress: _Progress,
        metrics: AnswerMetrics,
        finish_reason: str | None = None,
    ) -> None:
        tokens = [token for piece in pieces for token in piece.tokens]
        text = "".join(piece.text for piece in pieces)
        outputs = token_outputs(text, tokens)
        if job.request.return_log_probs:
            outputs |= log_prob_outputs(tokens, self._tokenizer.token_bytes)
        if job.request.num_top_log_probs:
            outputs |= top_log_prob_outputs(tokens, self._tokenizer.token_bytes)
        if not progress.has_sent:
            outputs |= first_outputs(job)
        progress.has_sent = True
        progress.num_sent += len(tokens)
        if finish_reason is not None:
            outputs |= end_outputs(job, progress.num_sent, finish_reason)
            if job.request.return_perf_metrics:
                times = _round_times(job, progress)
                outputs |= statistics_outputs(job, _summary_of(job, progress), times)
        send(outputs, finish_reason is not None)
        metrics.count_sent(tokens, is_last=finish_reason is not None)


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
        top = confirmed.top_log_probs[position] if confirmed.top_log_probs else ()
        drafter = confirmed.drafter if source else None
        yield Token(token, source, position, drafter, log_prob, top)
