"""Writes a draft model or head with random weights, whose drafts are hardly ever accepted."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

SEED = 4
LAYERS = (".layers.", "midlayer.")
"""Parts of the names of a draft model's and of an EAGLE-3 head's layers."""


def random_draft(source: Path, folder: Path) -> Path:
    """Write a checkpoint like `source`, with random layers, into the new `folder`; return it."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors = load_file(source / "model.safetensors")
    generator = torch.Generator().manual_seed(SEED)
    for name, tensor in tensors.items():
        if any(each in name for each in LAYERS) and tensor.dim() == 2:
            noise = 0.05 * torch.randn(tensor.shape, generator=generator)
            tensors[name] = noise.to(tensor.dtype)
    save_file(tensors, folder / "model.safetensors")
    return folder
