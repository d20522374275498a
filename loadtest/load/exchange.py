"""One request of a load test: asking, timing, and checking the answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from specdec.clients import SpecdecError
from specdec.clients.figures import num_compared
from specdec.loadtest.load.samples import OK, ChunkSample, RequestSample

if TYPE_CHECKING:
    from collections.abc import Generator

    from specdec.clients import AnswerEnd, Chunk, GenerationRequest
    from specdec.loadtest.load.prompts import Prompt

INCOMPLETE = "incomplete_answer"
UNFINISHED = "unfinished"
WRONG_ANSWER = "wrong_answer"


class StreamingClient(Protocol):
    """The part of a client that a load test needs; the gRPC and the HTTP client both have it."""

    def stream(self, request: GenerationRequest) -> Generator[Chunk, None, None]:
        """Yield the answer chunk by chunk. Raises SpecdecError if the request fails."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request about to be sent.

    `expected_ids` are the tokens that its answer must have; None means that they are not known.
    `lateness_s` is how much later than due it starts (open load).
    """

    prompt: Prompt
    request: GenerationRequest
    expected_ids: tuple[int, ...] | None = None
    lateness_s: float = 0.0


@dataclass(slots=True)
class Exchange:
    """A question and its answer so far.

    `start_s` is on the clock of the load test. `outcome` is `ok`, an `error_type` of the server, or
    one of INCOMPLETE, UNFINISHED and WRONG_ANSWER.
    """

    question: Question
    start_s: float
    arrivals: list[ChunkSample] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    end: AnswerEnd | None = None
    e2e_s: float = 0.0
    outcome: str = UNFINISHED
    detail: str = ""

    def run(self, client: StreamingClient) -> None:
        """Ask and wait for the whole answer.

        A failed request becomes an outcome and raises nothing. An exception that ends the load test
        itself passes through and leaves the outcome `unfinished`.
        """
        request = self.question.request
        start = time.perf_counter()
        try:
            for chunk in client.stream(request):
                if chunk.token_ids:
                    arrival_s = time.perf_counter() - start
                    num_tokens = len(chunk.token_ids)
                    self.arrivals.append(ChunkSample(request.request_id, arrival_s, num_tokens))
                    self.token_ids.extend(chunk.token_ids)
                self.end = chunk.end
            self.outcome, self.detail = self._check()
        except SpecdecError as error:
            self.outcome, self.detail = error.error_type, error.message
        finally:
            self.e2e_s = time.perf_counter() - start

    def _check(self) -> tuple[str, str]:
        num_tokens = len(self.token_ids)
        if self.end is None or self.end.num_output_tokens != num_tokens:
            claimed = self.end.num_output_tokens if self.end else None
            return INCOMPLETE, f"{num_tokens} tokens came, the last response says {claimed}"
        expected = self.question.expected_ids
        if expected is not None and tuple(self.token_ids) != expected:
            pairs = enumerate(zip(self.token_ids, expected, strict=False))
            position = next((i for i, (ours, theirs) in pairs if ours != theirs), None)
            where = "one is the beginning of the other" if position is None else f"at {position}"
            return WRONG_ANSWER, f"{num_tokens} tokens, {len(expected)} expected, differ {where}"
        return OK, ""

    def sample(self) -> RequestSample:
        """Return the sample of this request, as it is written to requests.csv."""
        end = self.end
        statistics = (end.speculative_decoding if end else None) or {}
        return RequestSample(
            request_id=self.question.request.request_id,
            prompt_id=self.question.prompt.prompt_id,
            category=self.question.prompt.category,
            start_s=self.start_s,
            lateness_s=self.question.lateness_s,
            ttft_s=self.arrivals[0].arrival_s if self.arrivals else None,
            e2e_s=self.e2e_s,
            num_input_tokens=end.num_input_tokens if end else None,
            num_output_tokens=len(self.token_ids),
            num_chunks=len(self.arrivals),
            num_draft_tokens=end.total_draft_tokens if end else None,
            num_accepted_tokens=end.total_accepted_draft_tokens if end else None,
            num_rounds=statistics.get("num_spec_steps"),
            num_compared=num_compared(statistics),
            acceptance_histogram=tuple(statistics.get("acceptance_histogram") or ()),
            finish_reason=end.finish_reason if end else "",
            outcome=self.outcome,
            detail=self.detail,
        )
