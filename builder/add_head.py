"""`specdec build add-head`: gives the target a head, which drafts from its hidden states."""

from __future__ import annotations

import re
from pathlib import Path

from builder.assembly import HEAD, WEIGHTS, fill_head
from builder.checks import read_config
from builder.errors import BuildError
from builder.parameters import set_parameters
from specdec.serving.drafter_names import RESERVED


def add_head(repository: Path, name: str, head: Path) -> str:
    """Give the target of `repository` the head in the folder `head`; requests name it `name`.

    Returns the head's architecture, as in its config.json. Raises BuildError for a reserved or
    invalid name, a head that is incomplete or made for another target, and a repository whose
    target has no weights.
    """
    if name in RESERVED or not re.fullmatch(r"[\w.-]+", name):
        raise BuildError(f"a head cannot be named {name!r}: requests would mean something else")
    target, place = repository / "target" / WEIGHTS, repository / "target" / HEAD
    if not target.is_dir():
        raise BuildError(f"{target} has no weights: run `specdec build pair` first")
    fill_head(head, target, place)
    set_parameters(repository / "target", head_dir=HEAD.name)
    set_parameters(repository / "specdec", target_head_name=name)
    return str(read_config(place)["architectures"][0])
