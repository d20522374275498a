"""Make the default pair's model repository from the unpacked archive, in the serving environment.

The target comes as its quantised file and is expanded here. A fingerprint that came with it proves
that these are the weights that `make setup` makes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from specdec.builder.fingerprint import fingerprint
from specdec.builder.importing.rotary_rows import in_halves
from specdec.builder.repository.shipped import copy_model
from specdec.builder.repository.weights import HEAD, WEIGHTS, assemble_draft, fill_head
from specdec.deployment.freshness import fingerprint_of
from specdec.loadtest.gpu.folders import GpuFolders, home
from specdec.torch_engine.config import ModelConfig


def make_model_repository(folders: GpuFolders) -> None:
    """Write target, draft model, head and orchestrator. Raises ValueError for wrong weights."""
    shutil.rmtree(folders.model_repository, ignore_errors=True)  # An earlier try may have failed.
    for model in ("target", "draft", "specdec"):
        copy_model(model, folders.model_repository)
    target = folders.model_repository / "target" / WEIGHTS
    expand(folders.target / "model.gguf", folders.target / "checkpoint", target)
    draft = folders.model_repository / "draft" / WEIGHTS
    assemble_draft(folders.stored / "draft", target, draft)
    fill_head(folders.stored / "eagle3", target, folders.model_repository / "target" / HEAD)


def expand(file: Path, small: Path, checkpoint: Path) -> None:
    """Write a GGUF file of a Llama model as a bf16 checkpoint.

    `small` is the folder of the checkpoint's other files. Raises ValueError if the fingerprint in
    it is not that of the expanded weights.
    """
    shutil.copytree(small, checkpoint, dirs_exist_ok=True)
    config = ModelConfig.from_directory(checkpoint)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_layers)
    tensors = {}
    stored = {each.name: each for each in gguf.GGUFReader(file).tensors}
    for name in _names(config):
        tensor = stored[f"{names.get_name(name.removesuffix('.weight'))}.weight"]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        rows = torch.from_numpy(np.array(values))
        if "q_proj" in name:
            rows = in_halves(rows, config.num_heads)
        elif "k_proj" in name:
            rows = in_halves(rows, config.num_kv_heads)
        tensors[name] = rows.bfloat16()
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    wanted, found = fingerprint_of(checkpoint), fingerprint(checkpoint)
    if found != wanted:
        raise ValueError(f"the expanded weights of {file} have fingerprint {found}, not {wanted}")


def _names(config: ModelConfig) -> list[str]:
    """Return the tensor names of a checkpoint with tied embeddings, as transformers names them."""
    layer: tuple[str, ...] = (
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
    )
    layer += ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    layer += ("input_layernorm", "post_attention_layernorm")
    inner = [f"model.layers.{n}.{name}" for n in range(config.num_layers) for name in layer]
    return [f"{name}.weight" for name in ("model.embed_tokens", *inner, "model.norm")]


if __name__ == "__main__":
    make_model_repository(GpuFolders(home()))
    sys.exit(0)
