"""`specdec build add-head`: a head that drafts on the target's own states."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from builder.assembly import WEIGHTS
from builder.checks import read_config
from builder.errors import BuildError
from specdec.serving.drafter_names import RESERVED

HEAD = Path("1/head")
"""Where the target's model keeps it."""


def add_head(repository: Path, name: str, head: Path) -> str:
    """Give the target of `repository` the head in the folder `head`; requests call it `name`.

    Returns what kind it is. Raises BuildError for a name that cannot be, a head that is incomplete
    or made for another target, and a repository whose target has no weights.
    """
    from builder.heads.checkpoint import assemble  # noqa: PLC0415 - torch is slow to import

    target = repository / "target" / WEIGHTS
    if name in RESERVED or not re.fullmatch(r"[\w.-]+", name):
        raise BuildError(f"a head cannot be named {name!r}: requests would mean something else")
    if not target.is_dir():
        raise BuildError(f"{target} has no weights: run `specdec build pair` first")
    configs = {
        repository / "target" / "config.pbtxt": {"head_dir": HEAD.name},
        repository / "specdec" / "config.pbtxt": {"target_head_name": name},
    }
    texts = {path: _with_parameters(path, values) for path, values in configs.items()}
    place = repository / "target" / HEAD
    scratch = place.with_name(f"{HEAD.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        assemble(head, target, scratch)
    except (OSError, ValueError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise BuildError(f"the head {head} cannot be used: {error}") from error
    kind = read_config(scratch)["architectures"][0]
    shutil.rmtree(place, ignore_errors=True)
    scratch.rename(place)
    for path, text in texts.items():
        path.write_text(text, "utf-8")
    return str(kind)


def _with_parameters(path: Path, values: dict[str, str]) -> str:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error}") from error
    for key, value in values.items():
        pattern = rf'(key: "{key}" value {{ string_value: ")[^"]*"'
        text, count = re.subn(pattern, rf'\g<1>{value}"', text)
        if count != 1:
            raise BuildError(f"the parameter {key} stands {count} times in {path}, not once")
    return text
