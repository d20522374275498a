"""The kinds of drafters. A new drafter has a module of its own and an entry in KINDS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specdec.drafting import grammar, scripted
from specdec.drafting.combining.late import LateDrafter
from specdec.drafting.context import DrafterContext
from specdec.drafting.copying import lookup, prediction, suffix
from specdec.drafting.names import (
    AUTO,
    ENGINE,
    GRAMMAR,
    LOOKUP,
    PREDICTION,
    SUFFIX,
    TREE,
    TREE_SUFFIX,
    VOTE,
)
from specdec.drafting.protocol import Drafter
from specdec.steering.choices import COPY, NONE


@dataclass(frozen=True, slots=True, eq=False)
class DrafterKind:
    """A kind of drafter, and how one is built."""

    name: str
    """Name of the kind. If `is_configured` is False, it is the name of its only drafter too."""
    build: Callable[[DrafterContext], Drafter] | None
    """Function that builds a request's drafter; None for a head, which drafts inside the target."""
    is_free: bool = True
    """Whether drafting costs no engine time; such drafters may propose beside any other one."""
    is_configured: bool = False
    """Whether the configuration names the drafters of this kind: none, one or several."""


DRAFT_MODEL = DrafterKind(
    "draft model",
    lambda context: LateDrafter(context.draft_model()),
    is_free=False,
    is_configured=True,
)
HEAD = DrafterKind("head", None, is_free=False, is_configured=True)
HEAD_TREE = DrafterKind("head tree", None, is_free=False, is_configured=True)
SCRIPTED = DrafterKind("scripted", scripted.build, is_configured=True)

KINDS = (
    DrafterKind(LOOKUP, lookup.build),
    DRAFT_MODEL,
    DrafterKind(SUFFIX, suffix.build),
    DrafterKind(PREDICTION, prediction.build),
    HEAD,
    HEAD_TREE,
    SCRIPTED,
    DrafterKind(GRAMMAR, grammar.build),
)
"""All kinds. Drafters are numbered in this order in `output_sources`, so add new kinds at the
end."""

AUTO_KINDS = (GRAMMAR, PREDICTION, LOOKUP, DRAFT_MODEL.name, HEAD.name, HEAD_TREE.name)
"""Names of the kinds that `auto` uses, in the order in which they are preferred."""
TREE_KINDS = (GRAMMAR, PREDICTION, LOOKUP, SUFFIX, DRAFT_MODEL.name)
"""Names of the kinds that `tree` joins, in the order in which they use up the tree's tokens."""

RESERVED = (
    *(kind.name for kind in KINDS if not kind.is_configured),
    *(AUTO, COPY, NONE, TREE, VOTE, ENGINE),
)
"""Names that no draft model, head or scripted drafter may have."""


def is_drafter_name(name: str) -> bool:
    """Return whether a draft model, head or scripted drafter may have this name.

    It has letters, digits, '_', '-' and '.', and is none of RESERVED.
    """
    return name not in RESERVED and re.fullmatch(r"[\w.-]+", name) is not None


@dataclass(frozen=True, slots=True)
class DrafterId:
    """A drafter that requests can name."""

    name: str
    source: int
    """The drafter's number in `output_sources`, from 1 on."""
    kind: DrafterKind
    head: str = ""
    """Name of the head that drafts, for a head's tree; empty for all other kinds."""

    @property
    def is_head(self) -> bool:
        """Whether the target's head drafts, as a chain or as a tree."""
        return self.kind in (HEAD, HEAD_TREE)


def drafter_ids(
    configured: Mapping[DrafterKind, Sequence[str]], *, has_trees: bool = True
) -> tuple[DrafterId, ...]:
    """Return all drafters in the order of their numbers.

    `configured` has the names of the draft models, the heads and the scripted drafters. With
    `has_trees`, each head also has a drafter of trees, named after it.
    """
    head_of = {name + TREE_SUFFIX: name for name in configured[HEAD] if has_trees}
    named = {**configured, HEAD_TREE: tuple(head_of)}
    names = (
        (name, kind)
        for kind in KINDS
        for name in (named[kind] if kind.is_configured else (kind.name,))
    )
    return tuple(
        DrafterId(name, number, kind, head_of[name] if kind is HEAD_TREE else "")
        for number, (name, kind) in enumerate(names, 1)
    )


def of_kinds(kinds: Sequence[str], ids: Sequence[DrafterId]) -> Iterator[DrafterId]:
    """Yield the drafters of the kinds with these names, in the order of `kinds`."""
    return (each for kind in kinds for each in ids if each.kind.name == kind)
