"""Fixtures that read our files as Triton reads them."""

import importlib
import sys
from unittest.mock import MagicMock

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tests.contract.declared import ROOT


@pytest.fixture(scope="session")
def configurations():
    """Return the parsed config.pbtxt of each model in model_repository/, by model name."""
    return {
        path.parent.name: text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
        for path in sorted((ROOT / "model_repository").glob("*/config.pbtxt"))
    }


TRITON_PACKAGES = ("specdec.serving.", "specdec.engine_model.", "specdec.triton_backend.")
"""Beginnings of the names of modules that import Triton's module."""


@pytest.fixture(scope="session")
def inside_triton():
    """Return a function that imports a module of ours which otherwise loads only inside Triton.

    A mock replaces Triton's module `triton_python_backend_utils`. Modules of
    ours that were imported over it are removed afterwards.
    """
    backend = "triton_python_backend_utils"
    before = dict(sys.modules)
    sys.modules.setdefault(backend, MagicMock())
    yield importlib.import_module
    for name in set(sys.modules) - set(before):
        if name == backend or name.startswith(TRITON_PACKAGES):
            del sys.modules[name]
