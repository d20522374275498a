"""The check of names for new drafters."""

from __future__ import annotations

from specdec.builder.errors import BuildError
from specdec.drafting.registry import is_drafter_name


def check_drafter_name(what: str, name: str) -> None:
    """Raise BuildError for a name that requests could not use; `what` names the drafter in it."""
    if not is_drafter_name(name):
        raise BuildError(f"{what} cannot be named {name!r}: the name is reserved or malformed")
