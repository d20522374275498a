"""Fixtures that several modules of unit tests use."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from specdec.torch_engine.model import LlamaModel
from tests.unit.tiny_heads import save_heads, save_target
from tests.unit.tiny_llama import save_tiny_llama
from tests.unit.torch_engine.by_hand import CPU, NUM_CACHE_TOKENS

# A busy machine is no fault of the code that is tested.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Limit PyTorch to one thread.

    Several threads would wait for each other after each small product, up to twenty times as long
    if other processes use the cores.
    """
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def two_threads(one_thread):
    """Let PyTorch share products between two threads, as it does when it serves."""
    torch.set_num_threads(2)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a tiny random Llama; each test replaces its cache."""
    directory = save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    return LlamaModel(directory, NUM_CACHE_TOKENS, CPU)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint directory of a random target with eight layers."""
    return save_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def heads(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a drafting head of each kind for `target`: its directory by kind."""
    return save_heads(target, tmp_path_factory.mktemp("heads"))
