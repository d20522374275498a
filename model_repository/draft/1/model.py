"""The torch engine; all code is in the package `specdec`."""

from specdec.engine_model.torch_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
