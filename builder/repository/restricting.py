"""Drafts whose output is reduced to the tokens that they share with their target."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from specdec.builder.checkpoints.files import read_config
from specdec.builder.checkpoints.vocabulary import SharedVocabulary
from specdec.builder.errors import BuildError
from specdec.drafting.models.translating import TARGET_IDS_FILE

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def restrict(checkpoint: Path, shared: SharedVocabulary, output: Path) -> None:
    """Copy a draft to `output`, reduced to proposing shared tokens and its end token.

    The output head keeps only those rows. As in EAGLE-3, the tensor `d2t` (int64 [rows]) holds for
    each row its token's id minus the row's index. target_ids.npy (int32 [draft vocabulary]) holds
    the target's token for each of the draft's. Raises BuildError if the head is reduced already, or
    the weights are incomplete.
    """
    # These modules are slow to import, and only this function needs them.
    import torch  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    from specdec.builder.checkpoints.tensors import read_tensors  # noqa: PLC0415
    from specdec.builder.distill.checkpoint import offsets  # noqa: PLC0415

    config = read_config(checkpoint)
    if config.get("draft_vocab_size") is not None:
        raise BuildError(f"{checkpoint} has a reduced output vocabulary already")
    tensors = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        tensors.update(read_tensors(file))
    if _EMBEDDING not in tensors:
        raise BuildError(f"{checkpoint} has no tensor {_EMBEDDING}")
    kept = np.flatnonzero(shared.target_ids >= 0)
    if isinstance(config.get("eos_token_id"), int):
        kept = np.union1d(kept, [config["eos_token_id"]])
    rows = torch.from_numpy(kept.astype(np.int64))
    head = tensors.get(_HEAD, tensors[_EMBEDDING])
    tensors[_HEAD] = head[rows].contiguous()
    tensors["d2t"] = offsets(rows)
    config |= {"draft_vocab_size": len(rows), "tie_word_embeddings": False}
    ignored = shutil.ignore_patterns("*.safetensors", "*.index.json", "config.json")
    shutil.copytree(checkpoint, output, ignore=ignored)
    save_file(tensors, output / "model.safetensors", metadata={"format": "pt"})
    (output / "model.safetensors").chmod(0o644)
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    np.save(output / TARGET_IDS_FILE, shared.target_ids)
