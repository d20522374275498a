"""The torch engine; all code is in the package `specdec`."""

from specdec.serving.engine_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
