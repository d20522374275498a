"""`specdec build add-draft`: one more draft engine in a model repository."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from builder.assembly import WEIGHTS
from builder.checks import check_pair, has_same_vocabulary
from builder.errors import BuildError
from builder.vocabulary import TOKENS, restrict, shared_vocabulary

PATTERN = "draft"
"""The model whose config.pbtxt new drafts get."""


def add_draft(
    repository: Path, name: str, checkpoint: Path, *, translation: str | None = None
) -> str:
    """Add the draft engine `name` to `repository`; return what was found about its vocabulary.

    `translation` overrides how a draft with another vocabulary meets the target. Raises BuildError
    for a name that is taken, a checkpoint that is none, or a pattern without a `draft` model.
    """
    target, place = repository / "target" / WEIGHTS, repository / name
    if place.exists():
        raise BuildError(f"{place} exists; choose another name")
    if not (repository / PATTERN / "config.pbtxt").is_file():
        raise BuildError(f"{repository} has no model {PATTERN!r} to take the configuration from")
    if has_same_vocabulary(target, checkpoint):
        check_pair(target, checkpoint)
        _add_model(repository, name)
        shutil.copytree(checkpoint, place / WEIGHTS)
        found = "the target's vocabulary"
    else:
        shared = shared_vocabulary(target, checkpoint)
        chosen = translation or shared.translation
        _add_model(repository, name)
        if chosen == TOKENS:
            restrict(checkpoint, shared, place / WEIGHTS)
        else:
            shutil.copytree(checkpoint, place / WEIGHTS)
        _append(repository, "draft_tokenizer_dirs", f"{name}=../../{name}/{WEIGHTS}")
        found = (
            f"another vocabulary: {shared.num_shared} of its {len(shared.target_ids)} tokens are "
            f"among the target's {shared.num_target}; they meet by {chosen}"
        )
    _append(repository, "tensorrt_llm_draft_model_name", name)
    return found


def _add_model(repository: Path, name: str) -> None:
    pattern, place = repository / PATTERN, repository / name
    (place / WEIGHTS).parent.mkdir(parents=True)
    shutil.copyfile(pattern / "1" / "model.py", place / "1" / "model.py")
    text = (pattern / "config.pbtxt").read_text("utf-8")
    text = _replaced(text, rf'^name: "{PATTERN}"', f'name: "{name}"')
    (place / "config.pbtxt").write_text(text, "utf-8")


def _append(repository: Path, parameter: str, value: str) -> None:
    """Add to a comma-separated parameter of the orchestrator."""
    config = repository / "specdec" / "config.pbtxt"
    pattern = rf'(key: "{parameter}" value {{ string_value: ")([^"]*)"'

    def longer(found: re.Match[str]) -> str:
        return f'{found[1]}{",".join(filter(None, (found[2], value)))}"'

    config.write_text(_replaced(config.read_text("utf-8"), pattern, longer), "utf-8")


def _replaced(text: str, pattern: str, new: object) -> str:
    result, count = re.subn(pattern, new, text, flags=re.MULTILINE)  # type: ignore[call-overload]
    if count != 1:
        raise BuildError(f"{pattern!r} stands {count} times in config.pbtxt, not once")
    return str(result)
