"""Fixtures of the tests on a CUDA device; without a device the tests are skipped with a reason."""

import pytest
import torch

from specdec.torch_engine.model import LlamaModel
from tests.gpu.device import DEVICE, IS_CUDA
from tests.unit.tiny_llama import save_tiny_llama
from tests.unit.torch_engine.gpu.graph_path import NUM_CACHE_TOKENS


def pytest_collection_modifyitems(items):
    """Skip tests marked `gpu` if PyTorch sees no CUDA device, unless a rehearsal runs them."""
    if torch.cuda.is_available() or not IS_CUDA:
        return
    reason = f"PyTorch {torch.__version__} sees no CUDA device"
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def model(request, directory):
    """Return a tiny model on the device, with CUDA graphs, in each dtype."""
    return LlamaModel(directory, NUM_CACHE_TOKENS, DEVICE, getattr(torch, request.param), "graph")


@pytest.fixture(scope="module")
def float32_model(directory):
    """Return the tiny model on the device, with CUDA graphs, in float32 only."""
    return LlamaModel(directory, NUM_CACHE_TOKENS, DEVICE, torch.float32, "graph")


@pytest.fixture(scope="module")
def cpu_model(directory):
    """Return the tiny model on the CPU in float32, run by PyTorch's own operations."""
    return LlamaModel(directory, NUM_CACHE_TOKENS, torch.device("cpu"), torch.float32, "torch")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return the folder of the tiny model's checkpoint."""
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))
