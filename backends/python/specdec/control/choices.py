"""What the controller chooses between."""

from __future__ import annotations

from dataclasses import dataclass

NONE = "none"
"""The target alone."""

COPY = "copy"
"""Drafters that cost nothing alone: where they find nothing, the round is a plain one."""

SHORT_COPY = 3
"""Guesses behind a single matching token, which is often a chance; where nobody else has any they
cost little."""


def least_beyond(depth: int) -> int:
    """A copy is taken where it is longer, beside a head that guesses so deep; 0: it does not."""
    return max(depth, SHORT_COPY) if depth else 0


def copies_beyond(length: int) -> str:
    """In the acceptance book: copies that are longer than `length` tokens."""
    return f"{COPY} beyond {length}" if length else COPY


@dataclass(frozen=True, slots=True)
class Choice:
    """How the next rounds of a request are made: who drafts, and how many tokens."""

    lead: str
    """A drafter's name, COPY for those that cost nothing alone, NONE for the target alone."""
    num_tokens: int = 0

    @property
    def is_off(self) -> bool:
        return self.lead == NONE


OFF_CHOICE = Choice(NONE)


@dataclass(frozen=True, slots=True)
class Lead:
    """A drafter that asks for time, and the numbers of guesses that it can be asked for."""

    name: str
    lengths: tuple[int, ...]
    """Ascending; the guesses of a tree are its nodes."""
    max_depth: int | None = None
    """Guesses of a tree that may follow each other; None for a chain."""
    is_head: bool = False
    """On the target's own states: it must have read along to go on."""

    def depth(self, num_tokens: int) -> int:
        return min(num_tokens, self.max_depth or num_tokens)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a request's choice is made from."""

    task: str
    band: str
    """Of temperature and verification: acceptance is counted apart in each."""
    leads: tuple[Lead, ...]
    has_copying: bool
    default: Choice
    """As long as nothing is known, and of modes that do not measure."""
    may_be_off: bool = True
    is_fixed: bool = False
    """The request says who drafts: the default is the only choice."""
    is_routed: bool = False
    """The operator says who drafts for this task: the default stands until it is measured."""

    def with_length(self, num_tokens: int) -> Choice:
        """The default with another number of guesses, as near to it as its lead can."""
        for lead in self.leads:
            if lead.name == self.default.lead:
                fitting = [each for each in lead.lengths if each <= num_tokens]
                return Choice(lead.name, max(fitting, default=lead.lengths[0]))
        return self.default
