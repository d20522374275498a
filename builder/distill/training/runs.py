"""The draft vocabulary of a training run, and the best draft that a run has kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec.builder.distill import data
from specdec.builder.distill.data import Example
from specdec.builder.distill.training.learner import Learner
from specdec.builder.distill.training.run_state import BEST, RunState


def inherited(module: Any, *, train_head: bool) -> dict[str, Any]:
    """Return the settings that follow from the draft in --start.

    With `train_head`, its output rows are trained from now on, even if they were the target's.
    """
    if train_head:
        module.lm_head.weight.requires_grad_(True)
    is_trained = module.lm_head.weight.requires_grad
    return {"draft_vocab": len(module.draft_ids), "train_head": is_trained}


def draft_vocabulary(
    examples: list[Example], target_dir: Path, out: Path, num: int, earlier: Learner | None
) -> Tensor:
    """Return the draft ids of a run, and write them to `out`.

    They are those of `earlier`, the draft in --start; else those of the run that is resumed; else
    the `num` tokens that the answers need most.
    """
    config = json.loads((target_dir / "config.json").read_text())
    end, vocab_size = [int(config["eos_token_id"])], int(config["vocab_size"])
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "draft_ids.json"
    if earlier is not None:
        ids = torch.as_tensor(earlier.module.draft_ids)
    elif kept.exists():
        ids = torch.tensor(json.loads(kept.read_text()))
    else:
        ids = data.choose_vocabulary(examples, vocab_size, num, end)
    kept.write_text(json.dumps(ids.tolist()))
    coverage = data.coverage(examples, ids, vocab_size)
    print(f"train: the draft vocabulary covers {coverage:.4f} of the answers")
    return ids


def load_best(run: Path) -> tuple[dict[str, Any], Tensor, dict[str, object]]:
    """Return the best state of a run, its draft ids, and notes for a config.json."""
    state = RunState.load(run / BEST)
    draft_ids = torch.tensor(json.loads((run / "draft_ids.json").read_text()))
    minutes = state.spent_s / 60
    notes = {"training": state.settings, "steps": state.step, "train_minutes": minutes}
    return state.weights, draft_ids, notes
