"""The tensors that a draft shares with its target: the embedding and the output rows."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from specdec.builder.checkpoints.tensors import read_tensors


def embedding_and_output_rows(target_dir: Path) -> tuple[Tensor, Tensor]:
    """Return embedding and output rows of the target, [vocab, hidden] float32 each.

    They are the same tensor if the target ties them. Raises BuildError if the weights cannot be
    read.
    """
    tensors = read_tensors(target_dir / "model.safetensors")
    embed = tensors["model.embed_tokens.weight"].float()
    return embed, tensors["lm_head.weight"].float() if "lm_head.weight" in tensors else embed
