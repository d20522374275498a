"""Raw samples: one row per request and one per chunk. Every figure is computed from them."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

OK = "ok"
REQUESTS_FILE = "requests.csv"
CHUNKS_FILE = "chunks.csv"


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One request, failed or not; times are in seconds.

    `start_s` counts from the start of the test, the other times from `start_s`. `lateness_s` is how
    much later than due the request started (open load). `outcome` is `ok`, an `error_type`, or an
    outcome of exchange.py; `detail` says more. `num_rounds` counts rounds with a draft.
    `num_compared` is Σ min(accepted + 1, k) over these rounds, the number of draft tokens that were
    compared with the target. `acceptance_histogram` counts these rounds by accepted tokens.
    """

    request_id: str
    prompt_id: str
    category: str
    start_s: float
    lateness_s: float
    ttft_s: float | None
    e2e_s: float
    num_input_tokens: int | None
    num_output_tokens: int
    num_chunks: int
    num_draft_tokens: int | None
    num_accepted_tokens: int | None
    num_rounds: int | None
    num_compared: int | None
    acceptance_histogram: tuple[int, ...]
    finish_reason: str
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class ChunkSample:
    """One response that carried tokens, `arrival_s` seconds after its request started."""

    request_id: str
    arrival_s: float
    num_tokens: int


class Recorder:
    """Writes samples as they come, so that an aborted test keeps what it had.

    Failed requests are samples too.
    """

    def __init__(self, directory: Path) -> None:
        self._requests = (directory / REQUESTS_FILE).open("w", newline="", encoding="utf-8")
        self._chunks = (directory / CHUNKS_FILE).open("w", newline="", encoding="utf-8")
        self._request_rows = csv.writer(self._requests)
        self._chunk_rows = csv.writer(self._chunks)
        self._request_rows.writerow([field.name for field in fields(RequestSample)])
        self._chunk_rows.writerow([field.name for field in fields(ChunkSample)])

    def add(self, request: RequestSample, chunks: Iterable[ChunkSample]) -> None:
        """Write one finished request and its chunks."""
        row = asdict(request)
        row["acceptance_histogram"] = " ".join(map(str, request.acceptance_histogram))
        self._request_rows.writerow(row.values())
        self._chunk_rows.writerows(asdict(chunk).values() for chunk in chunks)
        self._requests.flush()
        self._chunks.flush()

    def close(self) -> None:
        """Close the files."""
        self._requests.close()
        self._chunks.close()


@dataclass(frozen=True, slots=True)
class Samples:
    """Everything that one load test recorded."""

    requests: tuple[RequestSample, ...]
    chunks: tuple[ChunkSample, ...]


def read_samples(directory: Path) -> Samples:
    """Read the files that a `Recorder` wrote.

    Raises FileNotFoundError if no load test ran in this folder.
    """
    requests = _read_rows(directory / REQUESTS_FILE, _REQUEST_READERS)
    chunks = _read_rows(directory / CHUNKS_FILE, _CHUNK_READERS)
    return Samples(
        tuple(RequestSample(**row) for row in requests), tuple(ChunkSample(**row) for row in chunks)
    )


def _read_rows(path: Path, readers: dict[str, Callable[[str], Any]]) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as rows:
        return [
            {name: readers.get(name, str)(text) for name, text in row.items()}
            for row in csv.DictReader(rows)
        ]


def _float_or_none(text: str) -> float | None:
    return float(text) if text else None


def _int_or_none(text: str) -> int | None:
    return int(text) if text else None


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split())


_REQUEST_READERS: dict[str, Callable[[str], Any]] = {
    "start_s": float,
    "lateness_s": float,
    "ttft_s": _float_or_none,
    "e2e_s": float,
    "num_input_tokens": _int_or_none,
    "num_output_tokens": int,
    "num_chunks": int,
    "num_draft_tokens": _int_or_none,
    "num_accepted_tokens": _int_or_none,
    "num_rounds": _int_or_none,
    "num_compared": _int_or_none,
    "acceptance_histogram": _ints,
}
_CHUNK_READERS: dict[str, Callable[[str], Any]] = {"arrival_s": float, "num_tokens": int}
