"""A copy of a model repository in which other models draft as well."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path


def with_strangers(repository: Path, directory: Path, checkpoints: Mapping[str, Path]) -> Path:
    """Copy `repository` into `directory`, weights linked, and add a draft model per checkpoint.

    Each has its own tokenizer: a vocabulary that is not the target's.
    """
    for model in (each for each in repository.iterdir() if (each / "config.pbtxt").exists()):
        _link(model, directory / model.name, model / "1" / "checkpoint")
    for name, checkpoint in checkpoints.items():
        _link(repository / "draft", directory / name, checkpoint)
        _edit(directory / name / "config.pbtxt", r'^name: "draft"', f'name: "{name}"')
    config = directory / "specdec" / "config.pbtxt"
    _set(config, "tensorrt_llm_draft_model_name", ",".join(["draft", *checkpoints]))
    tokenizers = [f"{name}=../../{name}/1/checkpoint" for name in checkpoints]
    _set(config, "draft_tokenizer_dirs", ",".join(tokenizers))
    return directory


def _link(model: Path, copy: Path, checkpoint: Path) -> None:
    (copy / "1").mkdir(parents=True)
    shutil.copy(model / "config.pbtxt", copy)
    shutil.copy(model / "1" / "model.py", copy / "1")
    if checkpoint.exists():
        (copy / "1" / "checkpoint").symlink_to(checkpoint.resolve())


def _set(config: Path, parameter: str, value: str) -> None:
    pattern = rf'(key: "{parameter}" value {{ string_value: )"[^"]*"'
    _edit(config, pattern, rf'\g<1>"{value}"')


def _edit(config: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, config.read_text("utf-8"), flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{config}: {pattern!r} stands there {count} times, not once")
    config.write_text(text, encoding="utf-8")
