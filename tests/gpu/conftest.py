"""What tests on a CUDA device share; without one they are skipped, and say so."""

import pytest
import torch

from specdec.torch_engine.model import LlamaModel
from tests.gpu.device import DEVICE, IS_CUDA
from tests.unit.graph_path import NUM_CACHE_TOKENS
from tests.unit.tiny_llama import save_tiny_llama


def pytest_collection_modifyitems(items):
    """Skip where PyTorch sees no CUDA device, with the reason."""
    if torch.cuda.is_available() or not IS_CUDA:
        return
    reason = f"PyTorch {torch.__version__} sees no CUDA device"
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def model(request, directory):
    """Return a tiny model on the device, with graphs."""
    return LlamaModel(directory, NUM_CACHE_TOKENS, DEVICE, getattr(torch, request.param), "graph")


@pytest.fixture(scope="module")
def float32_model(directory):
    """Return the same model in float32 alone."""
    return LlamaModel(directory, NUM_CACHE_TOKENS, DEVICE, torch.float32, "graph")


@pytest.fixture(scope="module")
def cpu_model(directory):
    """Return the same weights in float32 on the CPU, in PyTorch's operations."""
    return LlamaModel(directory, NUM_CACHE_TOKENS, torch.device("cpu"), torch.float32, "torch")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return the tiny model's checkpoint."""
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))
