"""The file from which a training run resumes."""

from __future__ import annotations

import pytest
import torch

from specdec.builder.distill.training.run_state import LAST, RunState
from specdec.builder.errors import BuildError


def test_saved_state_is_loaded_again(tmp_path):
    """A run resumes with all that was saved."""
    state = RunState({"w": 1.5}, {"seed": 3}, 7, 60.0, 2.5, [{"tau": 2.5}], [{"lr": 0.1}])

    state.save(tmp_path / LAST)

    assert RunState.load(tmp_path / LAST) == state


def test_state_of_another_release_is_refused(tmp_path):
    """The message says what to do."""
    torch.save({"student": {}, "best": 0.0}, tmp_path / LAST)

    with pytest.raises(BuildError, match=r"last\.pt is from another release; start the run again"):
        RunState.load(tmp_path / LAST)
