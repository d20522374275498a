"""The parts of a request and of the server from which its drafters are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdec.constraints.constraint import Constraint
from specdec.drafting.protocol import Drafter
from specdec.token_ids import TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class DrafterContext:
    """All that one drafter of one request can be built from.

    The functions compute their results when they are called, so a drafter costs only what it uses.
    """

    name: str
    """The drafter's name."""
    source: int
    """The drafter's number in `output_sources`."""
    num_tokens: int
    """Draft tokens in a round of a drafter that costs no pass."""
    max_tokens: int
    """Draft tokens of such a round if the draft is likely to be right."""
    prompt: TokenIds
    """Prompt tokens, [n] int32."""
    prediction: Callable[[], TokenIds]
    """Function that returns the tokens [n] int32 of the answer that the client expects."""
    remembered: Callable[[], TokenIds]
    """Function that returns the tokens [n] int32 of the tenant's finished requests: see
    `suffix.Memory.text`."""
    script: Callable[[], TokenIds]
    """Function that returns the draft tokens [n] int32 of a scripted drafter for this prompt."""
    constraint: Callable[[], Constraint | None]
    """Function that returns the constraint of the request's guide; None without a guide."""
    draft_model: Callable[[], Drafter]
    """Function that returns a drafter that calls the draft model of this name."""
