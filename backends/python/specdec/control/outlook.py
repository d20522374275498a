"""What each choice promises: tokens per second of a request, as if all in flight chose the same.

Tokens of a round by what stood so far (acceptance_book), over the time of a round by what rounds
took so far (costs). A row that one request adds to a pass is paid for by all who share it, and so
is everything else that a request asks for: hence "as if all chose the same".
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.control.acceptance_book import AcceptanceBook
from specdec.control.choices import (
    COPY,
    COPY_BESIDE_HEAD,
    OFF_CHOICE,
    Choice,
    Situation,
    copy_beside,
)
from specdec.control.costs import CostModel

FEW_ROUNDS = 64
"""Of copying beside a head of one depth; so many make it half believed."""

LEAST_S = 1e-9
"""No round takes less, whatever a fit says."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands when a choice is made."""

    num_inflight: int
    num_context: int
    num_left: int
    """Tokens that may still be said."""
    is_start: bool
    can_read: bool = True
    """A head has read all of the text, or would read it with the prompt."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When and how a forecast is made."""

    now_s: float
    num_expected: float
    """Tokens that will be said, to share the cost of a prompt between."""
    optimism: float = 0.0
    """Standard errors that acceptance is believed above its mean."""


@dataclass(frozen=True, slots=True)
class _Copies:
    """What copying does for a request."""

    share: float
    """Of the rounds, those that verify a copy."""
    tokens: float
    """Of such a round."""
    rows: float

    def mixed(self, own: float, copied: float) -> float:
        """The mean over rounds with a copy and those without."""
        return self.share * copied + (1 - self.share) * own


_NO_COPIES = _Copies(0.0, 1.0, 0.0)


def speeds(
    book: AcceptanceBook, costs: CostModel, situation: Situation, place: Place, moment: Moment
) -> dict[Choice, float]:
    """Tokens per second by choice, for all that the request may have."""
    load, found = place.num_inflight, {}
    if situation.may_be_off:
        found[OFF_CHOICE] = 1 / max(costs.plain_s(load, place.num_context), LEAST_S)
    start_s, row_s = costs.pass_line(load, place.num_context, is_streamed=False)

    def token_s(copies: _Copies, tokens: float, rows: float, extra_s: float) -> float:
        """Seconds per token; `tokens`, `rows` of a round without a copy."""
        num_rows = 1 + copies.mixed(rows, copies.rows)
        return (start_s + row_s * load * num_rows + extra_s) / copies.mixed(tokens, copies.tokens)

    copies = beside_any = _NO_COPIES
    if situation.has_copying:
        beside_any, _ = _copies(book, situation, COPY_BESIDE_HEAD, moment)
        copies, _ = _copies(book, situation, COPY, moment)
        found[Choice(COPY)] = 1 / max(token_s(copies, 1.0, 0.0, 0.0), LEAST_S)
    for lead in situation.leads:
        if lead.is_head and not (place.is_start or place.can_read):
            continue
        deepest = max(map(lead.depth, lead.lengths))
        own = book.estimate(
            situation.task, lead.name, situation.band, moment.now_s, deepest, moment.optimism
        )
        reading_s = 0.0
        if place.is_start:
            reading_s = costs.reading_s(lead.name, place.num_context, is_head=lead.is_head)
        for length in lead.lengths:
            beside = copies
            if lead.is_head and situation.has_copying:
                depth = lead.depth(length)
                beside = _copies_beside(book, situation, depth, beside_any, moment)
            asked_share = 1.0 if lead.is_head else 1.0 - beside.share
            drafting_s = asked_share * costs.draft_s(lead.name, load, length)
            tokens = own.expected_tokens(lead.depth(length))
            each_s = token_s(beside, tokens, own.offers * length, drafting_s)
            each_s += reading_s / moment.num_expected
            found[Choice(lead.name, length)] = 1 / max(each_s, LEAST_S)
    return found


def _copies(
    book: AcceptanceBook, situation: Situation, name: str, moment: Moment
) -> tuple[_Copies, float]:
    """And the rounds that it rests on."""
    found = book.estimate(situation.task, name, situation.band, moment.now_s, 0)
    copies = _Copies(found.offers, 1 + found.mean_accepted, found.mean_drafted)
    return copies, found.num_asked


def _copies_beside(
    book: AcceptanceBook, situation: Situation, depth: int, usual: _Copies, moment: Moment
) -> _Copies:
    """Beside a head of this depth; as beside any, while little is known of it."""
    own, num_rounds = _copies(book, situation, copy_beside(depth), moment)
    trust = num_rounds / (num_rounds + FEW_ROUNDS)

    def blended(mine: float, others: float) -> float:
        return trust * mine + (1 - trust) * others

    return _Copies(
        blended(own.share, usual.share),
        blended(own.tokens, usual.tokens),
        blended(own.rows, usual.rows),
    )
