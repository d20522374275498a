"""The answers of `specdec`: chunks of confirmed tokens, the last one with statistics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.clients.errors import BROKEN_ANSWER, SpecdecError

# Output tensors of one response by name, as lists for both gRPC and HTTP.
Outputs = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The end of an answer; the fields are the outputs of the last response.

    `finish_reason` is `stop` or `length`. The fields from `total_draft_tokens` on are None without
    `return_perf_metrics`; the two for predictions also without `prediction`. `acceptance_rate` is
    accepted ÷ drafted. `speculative_decoding` is parsed from JSON in vLLM's shape
    (mean_acceptance_length, acceptance_histogram, num_spec_steps, …).
    """

    finish_reason: str
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None
    seed: int | None = None
    verification: str | None = None
    total_draft_tokens: int | None = None
    total_accepted_draft_tokens: int | None = None
    acceptance_rate: float | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None
    speculative_decoding: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TopToken:
    """One of the most likely tokens at a position; `token_bytes` may be a part of a character."""

    token_id: int
    log_prob: float
    token_bytes: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A response: new text and new tokens.

    `sources` has the source of each token: 0 for the target, n for the n-th drafter. Text may
    come some characters later than its tokens, because it has whole characters only. The server
    holds back what may be the start of a stop word. `log_probs` and `token_bytes` (the bytes of
    each token) are None unless the request asks for log-probabilities. `end` is None in all chunks
    but the last. `num_input_tokens` is in the first chunk, and so is `prompt_token_ids` if the
    request asks for it. `top_tokens` has the most likely tokens at the position of each token, the
    likeliest first; it is empty unless the request asks for them.
    """

    text: str
    token_ids: tuple[int, ...]
    sources: tuple[int, ...]
    log_probs: tuple[float, ...] | None = None
    end: AnswerEnd | None = None
    token_bytes: tuple[bytes, ...] | None = None
    num_input_tokens: int | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    top_tokens: tuple[tuple[TopToken, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A whole answer: the joined chunks."""

    text: str
    token_ids: tuple[int, ...]
    sources: tuple[int, ...]
    log_probs: tuple[float, ...] | None
    end: AnswerEnd
    token_bytes: tuple[bytes, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    top_tokens: tuple[tuple[TopToken, ...], ...] = ()


def collect(chunks: Iterable[Chunk]) -> GenerationResult:
    """Join the chunks of one answer.

    Raises SpecdecError (`client_broken_answer`) if no chunk has `end`, or one comes after it.
    """
    parts: list[Chunk] = []
    for chunk in chunks:
        if parts and parts[-1].end is not None:
            raise SpecdecError("a chunk came after the last one", error_type=BROKEN_ANSWER)
        parts.append(chunk)
    end = parts[-1].end if parts else None
    if end is None:
        message = f"the answer ended without its last response, after {len(parts)} chunks"
        raise SpecdecError(message, error_type=BROKEN_ANSWER)
    log_probs = [part.log_probs for part in parts if part.log_probs is not None]
    return GenerationResult(
        text="".join(part.text for part in parts),
        token_ids=tuple(token for part in parts for token in part.token_ids),
        sources=tuple(source for part in parts for source in part.sources),
        log_probs=tuple(value for part in log_probs for value in part) if log_probs else None,
        end=end,
        token_bytes=tuple(
            each for part in parts if part.token_bytes is not None for each in part.token_bytes
        )
        if log_probs
        else None,
        prompt_token_ids=parts[0].prompt_token_ids,
        top_tokens=tuple(each for part in parts for each in part.top_tokens),
    )


def chunk_from_outputs(outputs: Outputs) -> Chunk:
    """Return the chunk in the outputs of one response.

    Raises SpecdecError (`client_broken_answer`) if there are not as many sources as tokens, or if
    the statistics are not JSON.
    """
    token_ids = tuple(outputs.get("output_ids", ()))
    sources = tuple(outputs.get("output_sources", ()))
    if len(token_ids) != len(sources):
        message = f"{len(token_ids)} tokens came with {len(sources)} sources"
        raise SpecdecError(message, error_type=BROKEN_ANSWER)
    log_probs = outputs.get("output_log_probs")
    return Chunk(
        text="".join(outputs.get("text_output", ())),
        token_ids=token_ids,
        sources=sources,
        log_probs=None if log_probs is None else tuple(log_probs),
        end=_end_from_outputs(outputs),
        token_bytes=None if log_probs is None else _bytes(outputs.get("output_token_bytes", ())),
        num_input_tokens=next(iter(outputs.get("num_input_tokens", ())), None),
        prompt_token_ids=_optional(outputs.get("prompt_token_ids")),
        top_tokens=_top_tokens(outputs, len(token_ids)),
    )


def _top_tokens(outputs: Outputs, num_tokens: int) -> tuple[tuple[TopToken, ...], ...]:
    """Return the most likely tokens at each position; () without any."""
    names = "top_ids", "top_log_probs", "top_token_bytes"
    ids, log_probs, digits = (outputs.get(name, ()) for name in names)
    found = tuple(map(TopToken, ids, log_probs, _bytes(digits)))
    size = len(found) // num_tokens if num_tokens else 0
    return tuple(found[size * n : size * (n + 1)] for n in range(num_tokens)) if size else ()


def _bytes(digits: Sequence[str]) -> tuple[bytes, ...]:
    try:
        return tuple(map(bytes.fromhex, digits))
    except ValueError as error:
        message = f"output_token_bytes are no hexadecimal digits: {error}"
        raise SpecdecError(message, error_type=BROKEN_ANSWER) from error


def _optional(values: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _end_from_outputs(outputs: Outputs) -> AnswerEnd | None:
    def first(name: str) -> Any:
        values = outputs.get(name)
        return values[0] if values else None

    reason = first("finish_reason")
    if not reason:
        return None
    statistics = first("speculative_decoding")
    try:
        parsed = json.loads(statistics) if statistics else None
    except ValueError as error:
        message = f"speculative_decoding is not JSON: {error}"
        raise SpecdecError(message, error_type=BROKEN_ANSWER) from error
    return AnswerEnd(
        finish_reason=reason,
        num_input_tokens=first("num_input_tokens"),
        num_output_tokens=first("num_output_tokens"),
        seed=first("seed"),
        verification=first("verification"),
        total_draft_tokens=first("total_draft_tokens"),
        total_accepted_draft_tokens=first("total_accepted_draft_tokens"),
        acceptance_rate=first("acceptance_rate"),
        accepted_prediction_tokens=first("accepted_prediction_tokens"),
        rejected_prediction_tokens=first("rejected_prediction_tokens"),
        speculative_decoding=parsed,
    )
