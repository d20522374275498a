"""Model repositories whose target has an untrained head, whose draft tokens are mostly rejected."""

from __future__ import annotations

from pathlib import Path

import torch

from specdec.builder.heads import checkpoint, eagle3, medusa
from specdec.builder.repository.add_head import add_head
from specdec.builder.repository.weights import WEIGHTS
from specdec.loadtest.kit.repository import with_drafts
from tests.server.support.live import MODEL_REPOSITORY

UNTRAINED = "untrained"
"""Name of the head, by which requests ask for it as drafter."""
_TARGET = MODEL_REPOSITORY / "target" / WEIGHTS
_DRAFT_IDS = torch.arange(4096)


def repository_with_untrained_head(directory: Path, kind: str) -> Path:
    """Write the default pair with a head of this kind, `eagle3` or `medusa`; return its path.

    The head replaces that of the default pair.
    """
    torch.manual_seed(1)
    head = (
        eagle3.start(_TARGET, _DRAFT_IDS, train_head=False)
        if kind == "eagle3"
        else medusa.start(_TARGET, _DRAFT_IDS, 3, 1, train_head=False)
    )
    checkpoint.store(head, _TARGET, directory / "head", {})
    repository = with_drafts(MODEL_REPOSITORY, directory / "repository", [])
    # Remove the link to the head of the default pair.
    (repository / "target" / "1" / "head").unlink(missing_ok=True)
    add_head(repository, UNTRAINED, directory / "head")
    return repository
