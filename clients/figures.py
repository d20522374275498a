"""Figures that describe an answer, for `specdec chat`, `specdec generate` and the load tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specdec.clients.response import AnswerEnd


def num_compared(statistics: Mapping[str, Any]) -> int | None:
    """Return Σ min(accepted + 1, k) over the rounds of one answer: the denominator of α̂.

    `statistics` is the parsed output `speculative_decoding`. Its
    `acceptance_histogram_by_draft_length` has, for each k, the rounds by accepted tokens. It is
    needed because k may change from round to round. Without it the result is None.
    """
    by_length = statistics.get("acceptance_histogram_by_draft_length")
    if not by_length:
        return None
    total: int = sum(
        min(accepted + 1, int(length)) * num_rounds
        for length, histogram in by_length.items()
        for accepted, num_rounds in enumerate(histogram)
    )
    return total


def describe_answer(
    end: AnswerEnd, num_tokens: int, first_token_s: float | None, total_s: float
) -> str:
    """Return one line of figures about an answer.

    Times are seconds as this client measured them, reading of the prompt included. `first_token_s`
    is None if the answer did not stream.
    """
    rate = num_tokens / total_s if total_s > 0 else 0.0
    parts = [
        f"{num_tokens} tokens",
        f"{rate:.1f} tokens/s",
        *([] if first_token_s is None else [f"first after {first_token_s:.2f} s"]),
        *_describe_drafting(end),
        f"end: {end.finish_reason}",
    ]
    return " · ".join(parts)


def _describe_drafting(end: AnswerEnd) -> list[str]:
    drafted, accepted = end.total_draft_tokens, end.total_accepted_draft_tokens
    if drafted is None or accepted is None:
        return []
    if drafted == 0:
        return ["no speculation"]
    parts = [f"acceptance {accepted / drafted:.2f} ({accepted} of {drafted} drafted)"]
    statistics = end.speculative_decoding or {}
    compared, num_rounds = num_compared(statistics), statistics.get("num_spec_steps")
    if compared:
        parts.append(f"α̂ {accepted / compared:.2f}")
    if num_rounds:
        parts.append(f"k {drafted / num_rounds:.1f}")
        parts.append(f"{1 + accepted / num_rounds:.2f} tokens per drafted round")
    return parts
