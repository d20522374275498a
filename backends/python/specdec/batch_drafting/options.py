"""The options of a request, as they travel to an engine with a batch loop of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from specdec.drafting.names import AUTO
from specdec.errors import InvalidRequestError, shown

GREEDY_BAND = "greedy"


@dataclass(frozen=True, slots=True)
class DraftingOptions:
    """The part of a request that its drafters and the controller need."""

    max_tokens: int
    """Most tokens of the answer."""
    drafter: str = AUTO
    """The drafter as the request names it."""
    num_draft_tokens: int | None = None
    """Draft tokens in a round; None if the request leaves them open, 0 for no speculation."""
    task: str = ""
    """Label of the task."""
    task_drafter: str = ""
    """Drafter that the operator names for the task; empty for none."""
    tenant: str | None = None
    """Tenant whose finished requests `suffix` may copy from; None for requests that name none."""
    band: str = GREEDY_BAND
    """Label of temperature and verification mode; each has its own acceptance estimates."""
    prediction: tuple[int, ...] = ()
    """Tokens that the client expects in the answer."""

    def to_json(self) -> dict[str, Any]:
        """Return the options as a JSON object, for `from_json` in another process."""
        return asdict(self) | {"prediction": list(self.prediction)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> DraftingOptions:
        """Read the result of `to_json`.

        Raises InvalidRequestError if a field is unknown, missing or wrong.
        """
        known = {each.name for each in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise InvalidRequestError(f"unknown drafting option {shown(unknown[0])}")
        if "max_tokens" not in given:
            raise InvalidRequestError("the drafting options lack max_tokens")
        for name, value in given.items():
            if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
                raise InvalidRequestError(f"drafting option {name} cannot be {shown(value)}")
        if not all(type(each) is int and 0 <= each < 2**31 for each in given.get("prediction", ())):
            raise InvalidRequestError("drafting option prediction must be a list of token ids")
        options = cls(**{**given, "prediction": tuple(given.get("prediction", ()))})
        for name, value, least in (
            ("max_tokens", options.max_tokens, 1),
            ("num_draft_tokens", options.num_draft_tokens or 0, 0),
        ):
            if value < least:
                raise InvalidRequestError(f"{name} must be at least {least}; given {value}")
        return options


_TYPES: dict[str, tuple[type, ...]] = {
    "max_tokens": (int,),
    "drafter": (str,),
    "num_draft_tokens": (int, type(None)),
    "task": (str,),
    "task_drafter": (str,),
    "tenant": (str, type(None)),
    "band": (str,),
    "prediction": (list, tuple),
}
