"""The cases and arms of benches: how tokens are drawn, and how a request speculates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specdec.acceptance.modes import BLOCK
from specdec.drafting.names import JOIN, TREE, TREE_SUFFIX

OFF, AUTO = "off", "auto"
DIRECT = "direct"
"""The arm that calls the model `target` itself."""
ORCHESTRATOR = "specdec"


@dataclass(frozen=True, slots=True)
class Case:
    """The way tokens are drawn: greedily, or at a temperature, perhaps within a nucleus."""

    temperature: float
    top_p: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Case:
        """Read T[:TOP_P]."""
        temperature, _, top_p = text.partition(":")
        return cls(float(temperature), float(top_p or 1.0))

    def __str__(self) -> str:
        if self.temperature == 0.0:
            return "greedy"
        nucleus = f", top_p {self.top_p:g}" if self.top_p < 1.0 else ""
        return f"T = {self.temperature:g}{nucleus}"

    def fields(self, seed: int) -> dict[str, Any]:
        """Return the fields of a request."""
        return {"temperature": self.temperature, "top_p": self.top_p, "seed": seed}


GREEDY = Case(0.0)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to ask `specdec`; without a drafter, speculation is off."""

    drafter: str | None = None
    num_draft_tokens: int | None = None
    """Draft tokens of a round; None leaves them to the server."""
    verification: str | None = None
    """The verification mode; None leaves it to the server."""
    model: str = ORCHESTRATOR
    """The orchestrator that is asked."""

    @classmethod
    def parse(cls, text: str) -> Arm:
        """Read DRAFTER[:K][/VERIFICATION][@MODEL], or off[@MODEL]."""
        choice, _, model = text.partition("@")
        drafting, _, verification = choice.partition("/")
        drafter, _, length = drafting.partition(":")
        return cls(
            None if drafter == OFF else drafter,
            num_draft_tokens=int(length) if length else None,
            verification=verification or None,
            model=model or ORCHESTRATOR,
        )

    @property
    def has_chains(self) -> bool:
        """True if draft tokens are verified one after another, so that α̂ is defined."""
        drafter = self.drafter or ""
        is_tree = drafter == TREE or JOIN in drafter or drafter.endswith(TREE_SUFFIX)
        return not is_tree and self.verification != BLOCK

    def __str__(self) -> str:
        if self.drafter is None:
            return OFF
        k = f", k = {self.num_draft_tokens}" if self.num_draft_tokens else ""
        return self.drafter + k + (f", {self.verification}" if self.verification else "")

    def fields(self) -> dict[str, Any]:
        """Return the fields of a request."""
        if self.drafter is None:
            return {"num_draft_tokens": 0}
        return {
            "drafter": self.drafter,
            "num_draft_tokens": self.num_draft_tokens,
            "verification": self.verification,
        }
