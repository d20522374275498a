"""The rounds of an engine with our drafters inside, as it sends them with the tokens."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec.rounds import Round


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A round without its tokens, which the engine sends anyway."""

    num_tokens: int
    """Number of confirmed tokens, without the end token."""
    num_draft_tokens: int = 0
    """Number of draft tokens that the target verified."""
    drafter: str = ""
    """Name of the drafter; empty without a draft."""
    accepted_sources: tuple[int, ...] = ()
    """Number of the drafter that proposed each accepted token, as in `output_sources`."""
    draft_s: float = 0.0
    """Seconds for which the step waited for draft tokens."""
    ended: bool = False
    """Whether the target then generated its end token, which is not counted."""

    @classmethod
    def of(cls, confirmed: Round) -> RoundRecord:
        """Return the record of a round."""
        return cls(
            len(confirmed.tokens),
            confirmed.num_draft_tokens,
            confirmed.drafter or "",
            confirmed.accepted_sources,
            confirmed.draft_s,
            confirmed.ended,
        )

    def cut(self, num_tokens: int) -> RoundRecord:
        """Return the record of the round's first tokens, at most `num_tokens`."""
        if num_tokens >= self.num_tokens:
            return self
        sources = self.accepted_sources[:num_tokens]
        return replace(self, num_tokens=num_tokens, accepted_sources=sources, ended=False)

    def to_json(self) -> list[Any]:
        """Return the record as a JSON array."""
        return [
            self.num_tokens,
            self.num_draft_tokens,
            self.drafter,
            self.accepted_sources,
            round(self.draft_s, 6),
            self.ended,
        ]

    @classmethod
    def from_json(cls, given: Sequence[Any]) -> RoundRecord:
        """Read the result of `to_json`."""
        num_tokens, num_draft_tokens, drafter, sources, draft_s, ended = given
        return cls(num_tokens, num_draft_tokens, drafter, tuple(sources), draft_s, ended)


@dataclass(frozen=True, slots=True)
class DraftingReport:
    """The content of the output `drafting_report`."""

    rounds: tuple[RoundRecord, ...] = ()
    """The rounds whose tokens the response has."""
    task: dict[str, Any] | None = None
    """Only in the last response: the controller's report on the request's task
    (`TaskReport.to_json`); None without news."""
    failures: tuple[tuple[str, str], ...] = ()
    """Only in the last response: drafter and `error_type` of failures that no other response has.
    They may belong to other requests."""

    def to_text(self) -> str:
        """Return the report as JSON text."""
        rounds = [each.to_json() for each in self.rounds]
        return json.dumps({"rounds": rounds, "task": self.task, "failures": self.failures})

    @classmethod
    def from_text(cls, text: str) -> DraftingReport:
        """Read the result of `to_text`."""
        given = json.loads(text)
        failures = tuple((drafter, reason) for drafter, reason in given["failures"])
        return cls(tuple(map(RoundRecord.from_json, given["rounds"])), given["task"], failures)


class UnreadRounds:
    """The rounds of one request whose tokens have not come yet."""

    def __init__(self) -> None:
        self._records: deque[RoundRecord] = deque()

    def add(self, record: RoundRecord) -> None:
        self._records.append(record)

    def take(self, num_tokens: int) -> tuple[RoundRecord, ...]:
        """Return the rounds of the next `num_tokens` tokens.

        A round is cut if it has more tokens: an engine may end an answer within a round. Tokens of
        unknown rounds count as generated without speculation.
        """
        taken: list[RoundRecord] = []
        while self._records and (num_tokens or not self._records[0].num_tokens):
            taken.append(self._records.popleft().cut(num_tokens))
            num_tokens -= taken[-1].num_tokens
        if num_tokens:
            taken.append(RoundRecord(num_tokens))
        return tuple(taken)
