"""A model repository whose engines raise an exception in their loop when a file appears."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.loadtest.kit.repository import with_drafts

if TYPE_CHECKING:
    from pathlib import Path

_CODE = """
from pathlib import Path

from specdec.engine_model.torch_model import TritonPythonModel
from specdec.torch_engine.engine import TorchEngine

__all__ = ["TritonPythonModel"]

FAULT = Path({fault!r})
_go_round = TorchEngine._go_round


def _fail_once(self, scheduler):
    if FAULT.exists():
        FAULT.unlink()
        raise RuntimeError("planted by the bench")
    _go_round(self, scheduler)


TorchEngine._go_round = _fail_once
"""


def with_planted_faults(repository: Path, folder: Path) -> Path:
    """Copy `repository` into `folder`; a model's engine fails once its `fault_file` exists."""
    copy = with_drafts(repository, folder / "model_repository", [])
    for model in ("target", "draft"):
        code = _CODE.format(fault=str(fault_file(copy, model)))
        (copy / model / "1" / "model.py").write_text(code, "utf-8")
    return copy


def fault_file(repository: Path, model: str) -> Path:
    """Return the file that makes a model's engine fail."""
    return repository.parent / f"fault-{model}"
