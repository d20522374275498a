"""Read the drafter that a request asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.drafting.names import AUTO, JOIN, TREE, VOTE
from specdec.drafting.registry import DrafterId
from specdec.errors import InvalidRequestError, shown
from specdec.steering.choices import NONE


@dataclass(frozen=True, slots=True)
class AskedDrafter:
    """The drafter of a request, as the request names it."""

    name: str
    """The request's text: `auto`, `none`, `tree`, `vote`, a drafter, or several joined ones."""
    members: tuple[DrafterId, ...] = ()
    """The drafters that the text names one by one, in its order."""


AUTO_DRAFTER = AskedDrafter(AUTO)
"""The drafter of a request that names none."""


def read_drafter(name: str, known: Sequence[DrafterId]) -> AskedDrafter:
    """Return the drafter `name` of a request to a server with the drafters `known`.

    Raises InvalidRequestError for an unknown name, and for a joined name that repeats a drafter or
    joins a head to a draft model or to another head.
    """
    if name in (AUTO, NONE, TREE, VOTE):
        return AskedDrafter(name)
    by_name, parts = {each.name: each for each in known}, name.split(JOIN)
    if len(set(parts)) < len(parts) or not by_name.keys() >= set(parts):
        names = ", ".join(by_name)
        raise InvalidRequestError(
            f"drafter must be one of {AUTO}, {NONE}, {names}, {TREE}, {VOTE}, or several of "
            f"{names} joined by {JOIN!r}; given {shown(name)}"
        )
    members = tuple(by_name[part] for part in parts)
    costly = [each.name for each in members if not each.kind.is_free]
    if len(costly) > 1 and any(each.is_head for each in members):
        raise InvalidRequestError(
            "drafter may join a head to copy drafters only; given "
            f"{shown(name)}, which joins it to {' and '.join(costly)}"
        )
    return AskedDrafter(name, members)
