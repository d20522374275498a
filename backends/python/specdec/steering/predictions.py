"""Predicted speeds: tokens per second of a request for each choice.

A speed is the expected tokens of a round (`acceptance_book.py`) ÷ its expected time (`costs.py`).
All requests in flight are assumed to make the same choice: a pass is shared by all of them, so each
added row costs every one.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.steering.acceptance_estimates import AcceptanceEstimates
from specdec.steering.choices import (
    COPY,
    OFF_CHOICE,
    Choice,
    RequestTraits,
    copies_beyond,
    least_beyond,
)
from specdec.steering.copying import depths_of
from specdec.steering.costs import CostModel

LEAST_S = 1e-9
"""Least predicted seconds per token, in case a fit predicts less."""


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """The load, and how far the request is, when a choice is made."""

    num_inflight: int
    num_context: int
    """Tokens of the context."""
    num_left: int
    """Most tokens that the request may still generate."""
    is_start: bool
    """Whether it is the request's first choice."""
    can_read: bool = True
    """Whether a head has read the whole context, or would read it with the prompt."""


@dataclass(frozen=True, slots=True)
class PredictionParameters:
    """The parameters of a prediction."""

    now_s: float
    """Present time in seconds since the epoch, for the decay of estimates."""
    num_expected: float
    """Tokens that the request is expected to generate, which share the cost of its prompt."""
    optimism: float = 0.0
    """Standard errors added to acceptance estimates."""


@dataclass(frozen=True, slots=True)
class _Copies:
    """The expected copies of a request."""

    share: float = 0.0
    """Share of rounds that verify a copy, if each other round yields one token."""
    tokens: float = 1.0
    """Expected tokens of a round with a copy."""
    rows: float = 0.0
    """Expected draft tokens of a copy."""

    def share_beside(self, own_tokens: float) -> float:
        """Return `share` if each other round yields `own_tokens`.

        There are fewer other rounds then, but nearly as many copies.
        """
        num_others = (1 - self.share) / own_tokens
        return self.share / (self.share + num_others) if self.share else 0.0


def speeds(
    book: AcceptanceEstimates,
    costs: CostModel,
    traits: RequestTraits,
    place: RequestProgress,
    moment: PredictionParameters,
) -> dict[Choice, float]:
    """Predict tokens per second for each choice that the request has.

    All requests in flight are assumed to make the same choice.
    """
    load, found = place.num_inflight, {}
    if traits.may_be_off:
        found[OFF_CHOICE] = 1 / max(costs.plain_s(load, place.num_context), LEAST_S)
    start_s, row_s = costs.pass_line(load, place.num_context, is_streamed=False)
    copies = {
        depth: _copies(book, traits, depth, moment) if traits.has_copying else _Copies()
        for depth in depths_of(traits.leads)
    }

    def token_s(depth: int, tokens: float, rows: float, asked_s: float, every_s: float) -> float:
        """Return seconds per token, in a mix of rounds with copies beyond `depth` and others.

        `tokens`, draft `rows` and seconds `asked_s` are those of each other round; `every_s` are
        the seconds added to every round.
        """
        beside = copies[depth]
        share = beside.share_beside(tokens)
        num_rows = 1 + share * beside.rows + (1 - share) * rows
        round_s = start_s + row_s * load * num_rows + (1 - share) * asked_s + every_s
        return round_s / (share * beside.tokens + (1 - share) * tokens)

    if traits.has_copying:
        found[Choice(COPY)] = 1 / max(token_s(0, 1.0, 0.0, 0.0, 0.0), LEAST_S)
    for lead in traits.leads:
        if lead.is_head and not (place.is_start or place.can_read):
            continue
        deepest = max(map(lead.depth, lead.lengths))
        own = book.estimate(
            traits.task, lead.name, traits.band, moment.now_s, deepest, moment.optimism
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


def _copies(
    book: AcceptanceEstimates, traits: RequestTraits, depth: int, moment: PredictionParameters
) -> _Copies:
    found = book.estimate(traits.task, copies_beyond(depth), traits.band, moment.now_s, 0)
    return _Copies(found.offers, 1 + found.mean_accepted, found.mean_drafted)
