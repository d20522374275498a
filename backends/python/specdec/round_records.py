"""The rounds of an engine with our drafters inside, as it sends them with the tokens."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Protocol

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
    target_s: float | None = None
    """Seconds that the step took apart from `draft_s`; None if the engine does not say."""
    first: int = 0
    """Number of the answer's tokens before the round."""

    @classmethod
    def of(cls, confirmed: Round, first: int = 0) -> RoundRecord:
        """Return the record of a round that comes after the answer's `first` tokens."""
        return cls(
            len(confirmed.tokens),
            confirmed.num_draft_tokens,
            confirmed.drafter or "",
            confirmed.accepted_sources,
            confirmed.draft_s,
            confirmed.ended,
            confirmed.target_s,
            first,
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
            None if self.target_s is None else round(self.target_s, 6),
            self.first,
        ]

    @classmethod
    def from_json(cls, given: Sequence[Any]) -> RoundRecord:
        """Read the result of `to_json`."""
        num_tokens, num_draft_tokens, drafter, sources, *rest = given
        return cls(num_tokens, num_draft_tokens, drafter, tuple(sources), *rest)


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


@dataclass(frozen=True, slots=True)
class DraftRecord:
    """A draft that the engine has yet to verify."""

    first: int
    """Tokens of the answer before the draft."""
    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    """Number of the drafter that proposed each token, as in `output_sources`."""
    drafter: str
    draft_s: float
    """Seconds for which the step waited for draft tokens."""

    def verified(self, tokens: Sequence[int], *, ended: bool) -> RoundRecord:
        """Return the draft's round.

        `tokens` are those of the answer from `first` on; `ended`: whether the round ends with the
        end token, after all of them.
        """
        pairs = zip(tokens, self.tokens, strict=False)
        num_accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return RoundRecord(
            min(len(tokens), num_accepted + 1),
            len(self.tokens),
            self.drafter,
            self.sources[:num_accepted],
            self.draft_s,
            ended,
            first=self.first,
        )


class Rounds(Protocol):
    """The rounds of one request, whose records come beside its tokens."""

    def add(self, record: Any) -> None:
        """Take the next record."""

    def take(self, tokens: Sequence[int], *, ended: bool) -> tuple[RoundRecord, ...]:
        """Return the rounds of the next tokens; `ended`: whether the end token follows them.

        Tokens of unknown rounds count as generated without speculation.
        """


class UnreadRounds:
    """The rounds of one request whose tokens have not come yet; some records may be lost."""

    def __init__(self) -> None:
        self._records: deque[RoundRecord] = deque()
        self._num_tokens = 0

    def add(self, record: RoundRecord) -> None:
        """Take the record of the next round."""
        self._records.append(record)

    def take(self, tokens: Sequence[int], *, ended: bool) -> tuple[RoundRecord, ...]:  # noqa: ARG002
        """Return the rounds of the next tokens, as `Rounds` describes.

        A round is cut if it has more tokens: an engine may end an answer within a round.
        """
        end = self._num_tokens + len(tokens)
        taken: list[RoundRecord] = []
        while (record := self._next(end)) is not None:
            taken.append(record)
            self._num_tokens += record.num_tokens
        return tuple(taken)

    def _next(self, end: int) -> RoundRecord | None:
        """Return the next round of the answer's tokens before `end`; None if there is none."""
        while self._records and self._records[0].first < self._num_tokens:
            self._records.popleft()
        following = self._records[0] if self._records else None
        num_tokens = end - self._num_tokens
        if following is None or following.first > self._num_tokens:
            num_unknown = num_tokens
            if following is not None:
                num_unknown = min(num_tokens, following.first - self._num_tokens)
            return RoundRecord(num_unknown, first=self._num_tokens) if num_unknown else None
        if num_tokens == 0 and following.num_tokens:
            return None
        return self._records.popleft().cut(num_tokens)


class ExpectedRounds:
    """The rounds of one request, found by comparing its tokens with the drafts before them.

    For an engine that hands out tokens before it tells our drafters of them.
    """

    def __init__(self) -> None:
        self._drafts: deque[DraftRecord] = deque()
        self._num_tokens = 0

    def add(self, record: DraftRecord) -> None:
        """Take the draft of the next step; it comes before the tokens of that step."""
        self._drafts.append(record)

    def take(self, tokens: Sequence[int], *, ended: bool) -> tuple[RoundRecord, ...]:
        """Return the rounds of the next tokens, as `Rounds` describes."""
        taken: list[RoundRecord] = []
        while tokens:
            taken.append(self._round(tokens))
            tokens = tokens[taken[-1].num_tokens :]
            self._num_tokens += taken[-1].num_tokens
        if ended:
            draft = self._next()
            if draft is not None:
                taken.append(draft.verified((), ended=True))
            elif taken:
                taken[-1] = replace(taken[-1], ended=True)
        return tuple(taken)

    def _round(self, tokens: Sequence[int]) -> RoundRecord:
        """Return the first round of the tokens, which come next."""
        draft = self._next()
        if draft is None:
            return RoundRecord(len(tokens), first=self._num_tokens)
        if draft.first > self._num_tokens:
            num_tokens = min(len(tokens), draft.first - self._num_tokens)
            return RoundRecord(num_tokens, first=self._num_tokens)
        self._drafts.popleft()
        return draft.verified(tokens, ended=False)

    def _next(self) -> DraftRecord | None:
        """Return the first draft whose tokens have not come."""
        while self._drafts and self._drafts[0].first < self._num_tokens:
            self._drafts.popleft()
        return self._drafts[0] if self._drafts else None
