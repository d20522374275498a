"""The optimizers of a training run, AdamW or Muon, and the schedule of their learning rates."""

from __future__ import annotations

import math

import torch
from torch import nn

from specdec.builder.distill.training.learner import TrainSettings
from specdec.builder.errors import BuildError


def optimizers(module: nn.Module, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """Return AdamW for everything, or Muon for matrices and AdamW for output heads and scales.

    Raises BuildError if this PyTorch has no Muon.
    """
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    head = [p for name, p in named if "lm_head" in name]
    matrices = [p for name, p in named if p.dim() == 2 and "lm_head" not in name]
    scales = [p for _, p in named if p.dim() == 1]
    decay, rate = settings.weight_decay, settings.learning_rate
    groups = [{"params": scales, "weight_decay": 0.0, "lr": rate}]
    if head:
        groups.append({"params": head, "weight_decay": 0.0, "lr": settings.head_learning_rate})
    if settings.optimizer == "adamw":
        groups.append({"params": matrices, "weight_decay": decay, "lr": rate})
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), lr=rate)
    if settings.optimizer == "adamw":
        return [adam]
    if not hasattr(torch.optim, "Muon"):
        raise BuildError(
            f"--optimizer muon needs PyTorch 2.9 or later, found: {torch.__version__}; use adamw"
        )
    rate = settings.matrix_learning_rate
    muon = torch.optim.Muon(matrices, lr=rate, weight_decay=decay, momentum=0.95)
    return [muon, adam]


def schedule(progress: float, settings: TrainSettings) -> float:
    """Return the share of the peak learning rate at progress 0 to 1: linear warm-up, cosine."""
    if progress < settings.warmup_share:
        return (progress + 1e-3) / (settings.warmup_share + 1e-3)
    done = min(1.0, (progress - settings.warmup_share) / (1 - settings.warmup_share))
    floor = settings.final_share
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))
