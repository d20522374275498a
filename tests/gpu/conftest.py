"""What tests on a CUDA device share; without one they are skipped, and say so."""

import pytest
import torch

from specdec.torch_engine.model import LlamaModel
from tests.unit.graph_path import NUM_CACHE_TOKENS
from tests.unit.tiny_llama import save_tiny_llama

CUDA = torch.device("cuda")


def pytest_collection_modifyitems(items):
    """Skip where PyTorch sees no CUDA device, with the reason."""
    if torch.cuda.is_available():
        return
    reason = f"PyTorch {torch.__version__} sees no CUDA device"
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def model(request, tmp_path_factory):
    """Return a tiny model on the device, with graphs."""
    directory = save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    dtype = getattr(torch, request.param)
    return LlamaModel(directory, NUM_CACHE_TOKENS, CUDA, dtype, "graph")


@pytest.fixture(scope="module")
def cpu_model(tmp_path_factory):
    """Return the same weights in float32 on the CPU, in PyTorch's operations."""
    directory = save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    return LlamaModel(directory, NUM_CACHE_TOKENS, torch.device("cpu"), torch.float32, "torch")
