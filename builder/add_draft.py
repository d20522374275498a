"""`specdec build add-draft`: adds a draft engine to a model repository."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from builder.assembly import WEIGHTS
from builder.checks import check_pair, has_same_vocabulary, read_config
from builder.description.engine import TOKENS
from builder.errors import BuildError
from builder.vocabulary import restrict, shared_vocabulary
from specdec.serving.drafter_names import RESERVED

PATTERN = "draft"
"""Model whose config.pbtxt and model.py are copied for a new draft."""


def add_draft(
    repository: Path,
    name: str,
    checkpoint: Path,
    *,
    translation: str | None = None,
    pattern: Path | None = None,
) -> str:
    """Add the draft engine `name` to `repository`; return a sentence about its vocabulary.

    `translation` (one of TRANSLATIONS) overrides how the tokens of a cross-vocabulary draft are
    translated. `pattern` is the folder of the model whose configuration is copied, by default the
    repository's `draft`. A failed check leaves the repository unchanged. Raises BuildError for a
    name that is reserved, invalid or taken, a checkpoint that is incomplete or cannot draft for
    the target, or a missing pattern.
    """
    target, place = repository / "target" / WEIGHTS, repository / name
    if name in RESERVED or not re.fullmatch(r"[\w.-]+", name):
        raise BuildError(f"a draft cannot be named {name!r}: requests would mean something else")
    if place.exists():
        raise BuildError(f"{place} exists; choose another name")
    orchestrator = repository / "specdec" / "config.pbtxt"
    config = _appended(orchestrator.read_text("utf-8"), "tensorrt_llm_draft_model_name", name)
    # Written beside the repository: a server that watches it must not see half a model.
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=repository.parent) as scratch:
        new = Path(scratch) / name
        _write_model(pattern or repository / PATTERN, name, checkpoint, new)
        if has_same_vocabulary(target, checkpoint):
            check_pair(target, checkpoint)
            _check_context(config, checkpoint)
            shutil.copytree(checkpoint, new / WEIGHTS)
            found = "the target's vocabulary"
        else:
            shared = shared_vocabulary(target, checkpoint)
            chosen = translation or shared.translation
            if chosen == TOKENS:
                restrict(checkpoint, shared, new / WEIGHTS)
            else:
                shutil.copytree(checkpoint, new / WEIGHTS)
            place_of_tokenizer = f"{name}=../../{name}/{WEIGHTS}"
            config = _appended(config, "draft_tokenizer_dirs", place_of_tokenizer)
            found = (
                f"another vocabulary: {shared.num_shared} of its {len(shared.target_ids)} tokens "
                f"are among the target's {shared.num_target}; they meet by {chosen}"
            )
        new.rename(place)
    orchestrator.write_text(config, "utf-8")
    return found


def _check_context(config: str, checkpoint: Path) -> None:
    """Raise BuildError if the draft cannot read contexts of `max_seq_len` tokens.

    The context of a cross-vocabulary draft is cut to fit, so only others are checked.
    """
    limit = re.search(r'key: "max_seq_len" value { string_value: "(\d+)"', config)
    positions = read_config(checkpoint).get("max_position_embeddings")
    if limit is not None and positions is not None and positions < int(limit[1]):
        raise BuildError(
            f"the draft reads {positions} tokens, requests may have {limit[1]} (max_seq_len in "
            "specdec/config.pbtxt)"
        )


def _write_model(pattern: Path, name: str, checkpoint: Path, new: Path) -> None:
    """Copy config.pbtxt and model.py of `pattern`, with the draft's name and its max_seq_len."""
    try:
        text = (pattern / "config.pbtxt").read_text("utf-8")
    except OSError as error:
        message = f"{pattern.parent} has no model {PATTERN!r} to take the configuration from"
        raise BuildError(message) from error
    (new / WEIGHTS).parent.mkdir(parents=True)
    shutil.copyfile(pattern / "1" / "model.py", new / "1" / "model.py")
    text = _replaced(text, rf'^name: "{PATTERN}"', f'name: "{name}"')
    positions = read_config(checkpoint).get("max_position_embeddings")

    def shorter(found: re.Match[str]) -> str:
        return f"{found[1]}{min(int(found[2]), positions or int(found[2]))}"

    text = _replaced(text, r'(key: "max_seq_len" value { string_value: ")(\d+)', shorter)
    (new / "config.pbtxt").write_text(text, "utf-8")


def _appended(config: str, parameter: str, value: str) -> str:
    """Return `config` with `value` added to a comma-separated parameter."""

    def longer(found: re.Match[str]) -> str:
        return f'{found[1]}{",".join(filter(None, (found[2], value)))}"'

    return _replaced(config, rf'(key: "{parameter}" value {{ string_value: ")([^"]*)"', longer)


def _replaced(text: str, pattern: str, new: str | Callable[[re.Match[str]], str]) -> str:
    """Replace the one match of `pattern`. Raises BuildError if there is none or several."""
    result, count = re.subn(pattern, new, text, flags=re.MULTILINE)
    if count != 1:
        raise BuildError(f"{pattern!r} stands {count} times in config.pbtxt, not once")
    return result
