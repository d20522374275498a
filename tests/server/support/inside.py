"""Servers with our drafters inside their engine.

The engine is a strict double of TensorRT-LLM's LLM API, or vLLM's CPU build in the environment of
the Python that VLLM_PYTHON names.
"""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from specdec.health.board import SHARED_MEMORY
from specdec.launch.triton_server import TritonServer
from tests.doubles.repository import inside_repository

ENGINES = ["llmapi", pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.timeout(900)])]
"""The kinds of engines, as parameters of a fixture."""
VLLM_PAIR = "smollm2_135m_vllm"
START_S = 500.0
HANG_S = 60.0
"""Hang limit of the servers. On a processor without bfloat16 instructions, a step of vLLM that
reads 16 short prompts takes 10 s, the usual limit."""


@contextmanager
def inside_server(engine, directory, change=lambda repository: None, pair=VLLM_PAIR):
    """Serve an engine, and check that nothing of it is left in shared memory afterwards.

    `change` may change the repository first. `pair` is what vLLM serves.
    """
    log, python = directory / "server.log", Path(sys.executable)
    if engine == "llmapi":
        repository = inside_repository(directory)
    else:
        python, repository = Path(os.environ["VLLM_PYTHON"]).absolute(), directory / "repository"
        command = [str(python), "-m", "specdec", "build", "render", pair]
        subprocess.run([*command, "--output", str(repository)], check=True)
    change(repository)
    before = _library_memory()
    with TritonServer(
        repository, log_path=log, python=python, ready_timeout_s=START_S, hang_s=HANG_S
    ) as started:
        yield started
    assert _library_memory() <= before


def _library_memory():
    names = (each.name for each in SHARED_MEMORY.iterdir())
    return {name for name in names if name.startswith(("psm_", "sem.mp-"))}
