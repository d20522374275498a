"""The orchestrator; all code is in the package `specdec`."""

from specdec.serving.orchestrator import TritonPythonModel

__all__ = ["TritonPythonModel"]
