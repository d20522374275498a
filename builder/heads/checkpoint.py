"""Heads on disk, in the layouts that other engines load, and in a smaller form.

The small form leaves the output rows out if they are the target's, and else has them in a file of
their own. `assemble` puts them back.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from specdec.builder.checkpoints.files import read_config
from specdec.builder.checkpoints.tensors import read_tensors
from specdec.builder.errors import BuildError
from specdec.builder.fingerprint import fingerprint
from specdec.builder.heads.layouts import LAYOUTS, Config, HeadLayout, Tensors, layout_of
from specdec.builder.heads.learner import Head
from specdec.deployment.freshness import RECORD_FILE, write_trained_on

ROWS = "output_rows.safetensors"
"""File of trained output rows in the small form."""


def store(head: nn.Module, target_dir: Path, out: Path, notes: dict[str, Any]) -> None:
    """Write the head, its config.json with `notes`, and a record of the target it was trained on.

    Raises TypeError for a module that is not a head.
    """
    layout = layout_of(head)
    out.mkdir(parents=True, exist_ok=True)
    tensors, config = layout.stored(head, target_dir)
    config = {"architectures": [layout.architecture], **config, **notes}
    _write(out / layout.weights, tensors)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_trained_on(out, fingerprint(target_dir))


def shrink(folder: Path) -> None:
    """Reduce a stored head to the small form, in place.

    Output rows that were not trained are left out; trained ones move to a file of their own.
    """
    config, layout = _read_config(folder)
    tensors = read_tensors(folder / layout.weights)
    rows = tensors.pop("lm_head.weight", None)
    tensors.pop("t2d", None)
    if rows is not None and config["training"]["train_head"]:
        _write(folder / ROWS, {"lm_head.weight": rows})
    _write(folder / layout.weights, tensors)


def assemble(folder: Path, target_dir: Path, out: Path) -> None:
    """Write the head as engines load it.

    Raises BuildError for an unknown kind of head, a head for a target of other sizes, an
    incomplete head, and files that cannot be read.
    """
    config, layout = _read_config(folder)
    target = json.loads((target_dir / "config.json").read_text())
    for key in ("hidden_size", "vocab_size"):
        if config.get(key) != target[key]:
            raise BuildError(f"its {key} is {config.get(key)}; this target has {target[key]}")
    tensors = read_tensors(folder / layout.weights)
    if (folder / ROWS).exists():
        tensors |= read_tensors(folder / ROWS)
    tensors = layout.completed(tensors, config, target_dir)
    _refuse_incomplete(layout, tensors, config)
    out.mkdir(parents=True, exist_ok=True)
    _write(out / layout.weights, tensors)
    for name in ("config.json", RECORD_FILE):
        if (folder / name).exists():
            shutil.copyfile(folder / name, out / name)


def load(folder: Path, target_dir: Path) -> Head:
    """Return a stored head, its bf16 values in float32.

    Raises BuildError for an unknown kind of head, an incomplete one, and files that cannot be
    read.
    """
    config, layout = _read_config(folder)
    tensors = read_tensors(folder / layout.weights)
    _refuse_incomplete(layout, tensors, config)
    return layout.loaded(tensors, config, target_dir)


def _write(path: Path, tensors: Tensors) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    # safetensors writes files that only their owner can read.
    path.chmod(0o644)


def _read_config(folder: Path) -> tuple[Config, HeadLayout]:
    config = read_config(folder)
    found = config.get("architectures") or []
    for layout in LAYOUTS:
        if layout.architecture in found:
            return config, layout
    known = ", ".join(layout.architecture for layout in LAYOUTS)
    raise BuildError(f"its architectures are {found}; known heads are {known}")


def _refuse_incomplete(layout: HeadLayout, tensors: Tensors, config: Config) -> None:
    """Raise BuildError if the head lacks a key of config.json or a tensor."""
    lacking = [key for key in layout.config_keys if not isinstance(config.get(key), int)]
    if lacking:
        raise BuildError(f"its config.json has no {', '.join(lacking)}")
    missing = [name for name in layout.needed_tensors(config) if name not in tensors]
    if missing:
        raise BuildError(f"the {layout.name} head has no {', '.join(missing)}")
