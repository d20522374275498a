"""Send one request and time its answer, or go through many prompts at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from specdec.clients import GenerationResult, collect
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import GREEDY, Case
from specdec.loadtest.kit.options import progress
from specdec.loadtest.kit.ratios import Timed

if TYPE_CHECKING:
    from specdec.clients import Chunk, GenerationRequest

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """The settings that all requests of a bench share."""

    max_tokens: int
    case: Case = GREEDY
    seed: int = 1
    has_statistics: bool = False
    """True to request the statistics of speculation with each answer."""


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """A whole answer; times are in seconds since the request was sent."""

    result: GenerationResult
    num_first: int
    """Tokens of the first response that has any."""
    first_s: float
    last_s: float

    @property
    def timed(self) -> Timed:
        """The tokens and the time of the whole answer, the time to read the prompt included."""
        return Timed(len(self.result.token_ids), self.last_s)


class StreamingClient(Protocol):
    """A client that streams answers, over gRPC or through the gateway."""

    def stream(self, request: GenerationRequest) -> Generator[Chunk, None, None]:
        """Yield the answer chunk by chunk; closing the generator hangs up."""


def timed_chunks(
    client: StreamingClient, request: GenerationRequest
) -> Generator[tuple[float, Chunk], None, None]:
    """Yield each chunk of an answer with the seconds since the request was sent.

    Closing the generator hangs up. Raises SpecdecError if the request fails.
    """
    sent_s = time.perf_counter()
    with closing(client.stream(request)) as chunks:
        for chunk in chunks:
            yield time.perf_counter() - sent_s, chunk


def ask(client: StreamingClient, request: GenerationRequest) -> TimedAnswer:
    """Stream one answer to its end. Raises SpecdecError if the request fails."""
    chunks = []
    first_s = last_s = 0.0
    num_first = 0
    for last_s, chunk in timed_chunks(client, request):
        if chunk.token_ids and not num_first:
            first_s, num_first = last_s, len(chunk.token_ids)
        chunks.append(chunk)
    return TimedAnswer(collect(chunks), num_first, first_s, last_s)


def measure(
    client: StreamingClient, request: GenerationRequest, about: tuple[str, str, str]
) -> Measurement:
    """Stream one answer and return its figures. Raises SpecdecError if the request fails.

    `about` has the prompt's id, its column and the arm.
    """
    answer = ask(client, request)
    statistics = dict(answer.result.end.speculative_decoding or {}) or None
    times = answer.num_first, answer.first_s, answer.last_s
    return Measurement(*about, len(answer.result.token_ids), *times, statistics)


def find_at_once(
    find: Callable[[Item], list[Found]], prompts: Sequence[Item], num_threads: int
) -> list[Found]:
    """Return what `find` returns for each prompt, in their order, and show the progress.

    `num_threads` prompts are in work at the same time.
    """
    found: list[Found] = []
    with ThreadPoolExecutor(num_threads) as pool:
        for number, own in enumerate(pool.map(find, prompts), start=1):
            found += own
            progress(f"{number}/{len(prompts)} prompts")
    print(file=sys.stderr)
    return found
