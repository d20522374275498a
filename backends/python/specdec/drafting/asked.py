"""Read the drafter that a request asks for, and find the drafters that it allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.drafting.names import AUTO, GRAMMAR, JOIN, PREDICTION, TREE, VOTE
from specdec.drafting.registry import (
    AUTO_KINDS,
    DRAFT_MODEL,
    TREE_KINDS,
    DrafterId,
    of_kinds,
)
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


def allowed_drafters(
    asked: AskedDrafter,
    known: Sequence[DrafterId],
    routed: DrafterId | None,
    *,
    has_prediction: bool,
    has_guide: bool,
) -> list[DrafterId]:
    """Return the drafters that a request allows, best first; none for `none`.

    `known` are all drafters of the server, and `routed` is the one that the operator names for the
    request's task. Without a prediction in the request, the drafter `prediction` is left out, and
    without a guide the drafter `grammar`.
    """
    if asked.name == NONE:
        return []
    if asked.name == VOTE:
        return list(of_kinds([DRAFT_MODEL.name], known))
    if asked.members:
        return list(asked.members)
    is_auto = asked.name == AUTO
    found = list(of_kinds(AUTO_KINDS if is_auto else TREE_KINDS, known))
    if is_auto and routed is not None and routed.kind.is_free:
        # Guide and prediction are better still: the client sent them for this very answer.
        first = [each for each in found if each.name in (GRAMMAR, PREDICTION)]
        found = list(dict.fromkeys([*first, routed, *found]))
    has = {PREDICTION: has_prediction, GRAMMAR: has_guide}
    return [each for each in found if has.get(each.name, True)]
