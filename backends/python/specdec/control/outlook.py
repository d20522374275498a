"""What each choice promises: tokens per second of a request, as if all in flight chose the same.

Tokens of a round by what stood so far (acceptance_book), over the time of a round by what rounds
took so far (costs). A row that one request adds to a pass is paid for by all who share it, and so
is everything else that a request asks for: hence "as if all chose the same".
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.control.acceptance_book import AcceptanceBook
from specdec.control.choices import COPY, OFF_CHOICE, Choice, Situation, copies_beyond, least_beyond
from specdec.control.copying import depths_of
from specdec.control.costs import CostModel

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

    share: float = 0.0
    """Of the rounds, those that verify a copy, where the others say a token each."""
    tokens: float = 1.0
    """Of such a round."""
    rows: float = 0.0

    def share_beside(self, own_tokens: float) -> float:
        """The same where the others say more: they are fewer then, and copies nearly as many."""
        num_others = (1 - self.share) / own_tokens
        return self.share / (self.share + num_others) if self.share else 0.0


def speeds(
    book: AcceptanceBook, costs: CostModel, situation: Situation, place: Place, moment: Moment
) -> dict[Choice, float]:
    """Tokens per second by choice, for all that the request may have."""
    load, found = place.num_inflight, {}
    if situation.may_be_off:
        found[OFF_CHOICE] = 1 / max(costs.plain_s(load, place.num_context), LEAST_S)
    start_s, row_s = costs.pass_line(load, place.num_context, is_streamed=False)
    copies = {
        depth: _copies(book, situation, depth, moment) if situation.has_copying else _Copies()
        for depth in depths_of(situation.leads)
    }

    def token_s(depth: int, tokens: float, rows: float, asked_s: float, every_s: float) -> float:
        """Seconds per token, beside copies beyond `depth`; `tokens`, `rows` of the other rounds.

        `asked_s` is for each of these, `every_s` for all.
        """
        beside = copies[depth]
        share = beside.share_beside(tokens)
        num_rows = 1 + share * beside.rows + (1 - share) * rows
        round_s = start_s + row_s * load * num_rows + (1 - share) * asked_s + every_s
        return round_s / (share * beside.tokens + (1 - share) * tokens)

    if situation.has_copying:
        found[Choice(COPY)] = 1 / max(token_s(0, 1.0, 0.0, 0.0, 0.0), LEAST_S)
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
            depth, drafting_s = lead.depth(length), costs.draft_s(lead.name, load, length)
            each_s = token_s(
                least_beyond(depth) if lead.is_head else 0,
                own.expected_tokens(depth),
                own.offers * length,
                asked_s=0.0 if lead.is_head else drafting_s,
                every_s=drafting_s if lead.is_head else 0.0,
            )
            each_s += reading_s / moment.num_expected
            found[Choice(lead.name, length)] = 1 / max(each_s, LEAST_S)
    return found


def _copies(book: AcceptanceBook, situation: Situation, depth: int, moment: Moment) -> _Copies:
    found = book.estimate(situation.task, copies_beyond(depth), situation.band, moment.now_s, 0)
    return _Copies(found.offers, 1 + found.mean_accepted, found.mean_drafted)
