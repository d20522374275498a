"""The tensors that heads share with their target: its embedding and its output rows."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor


def target_ends(target_dir: Path) -> tuple[Tensor, Tensor]:
    """Return embedding and output rows, [vocab, hidden] float32 each.

    They are the same tensor if the target ties them.
    """
    raw = load_file(target_dir / "model.safetensors")
    embed = raw["model.embed_tokens.weight"].float()
    return embed, raw["lm_head.weight"].float() if "lm_head.weight" in raw else embed
