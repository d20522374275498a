"""The controller's choices, and the properties of a request on which they depend."""

from __future__ import annotations

from dataclasses import dataclass

NONE = "none"
"""Name of the choice without speculation."""

COPY = "copy"
"""Name of the choice with copy drafters only. If they have no proposal, a round is a plain step."""

SHORT_COPY = 3
"""Draft tokens of a copy that matched a single token, often by chance. Beside a head's draft only
longer copies are used; without one, short copies cost little."""


def least_beyond(depth: int) -> int:
    """Return the length that a copy must exceed beside a head's draft of `depth`.

    A `depth` of 0 means no draft by a head; any copy is then used.
    """
    return max(depth, SHORT_COPY) if depth else 0


@dataclass(frozen=True, slots=True)
class EstimatedDrafter:
    """A drafter whose acceptance is estimated."""

    name: str
    """The drafter's name; COPY stands for all copy drafters together."""
    beyond: int = 0
    """Draft tokens that a copy must exceed to count; 0 if all drafts count."""

    @property
    def is_copy(self) -> bool:
        """Whether it stands for all copy drafters together."""
        return self.name == COPY


COPIES, LONG_COPIES = EstimatedDrafter(COPY), EstimatedDrafter(COPY, SHORT_COPY)
"""All copies, and those of more than SHORT_COPY tokens, the estimate for copies beside any head's
draft. A deeper draft leaves only longer ones; the estimate ignores this."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Drafter and draft length for the next rounds of a request."""

    drafter: str
    """The drafter's name; COPY for copy drafters only, NONE for no speculation."""
    num_tokens: int = 0
    """Draft tokens per round; 0 for COPY and NONE."""

    @property
    def is_off(self) -> bool:
        return self.drafter == NONE


OFF_CHOICE, COPY_CHOICE = Choice(NONE), Choice(COPY)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft engine or head, and the draft lengths that the controller may choose."""

    name: str
    lengths: tuple[int, ...]
    """Draft tokens per round, ascending; for a tree, all its tokens."""
    max_depth: int | None = None
    """Greatest depth of a tree; None for a chain."""
    is_head: bool = False
    """Whether it is a head. A head can only draft if it has read the whole context."""

    def depth(self, num_tokens: int) -> int:
        return min(num_tokens, self.max_depth or num_tokens)


@dataclass(frozen=True, slots=True)
class RequestTraits:
    """The properties of a request that determine its possible choices and their estimates."""

    task: str
    band: str
    """Label of temperature and verification mode; each has acceptance estimates of its own."""
    candidates: tuple[Candidate, ...]
    """Draft engines and heads that may be chosen."""
    max_copy_tokens: int
    """Most draft tokens of a copy; 0 without copy drafters."""
    default: Choice
    """Choice while nothing is known, and in modes that do not measure."""
    may_be_off: bool = True
    """Whether the request may run without speculation."""
    is_fixed: bool = False
    """Whether the request names its drafter; `default` is then the only choice."""
    is_routed: bool = False
    """Whether the operator names a drafter for the task; `default` then holds until measured."""

    def with_length(self, num_tokens: int) -> Choice:
        """Return the default with at most `num_tokens` draft tokens, or its shortest draft."""
        for candidate in self.candidates:
            if candidate.name == self.default.drafter:
                fitting = [each for each in candidate.lengths if each <= num_tokens]
                return Choice(candidate.name, max(fitting, default=candidate.lengths[0]))
        return self.default
