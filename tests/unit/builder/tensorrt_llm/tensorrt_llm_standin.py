"""Install a stand-in for TensorRT-LLM for one test, as the release that the test asks for."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from specdec.builder.tensorrt_llm import installation

STANDINS = Path(__file__).parents[3] / "standins"
ROOT = STANDINS.parents[1]


def install(monkeypatch: pytest.MonkeyPatch, directory: Path, version: str) -> None:
    """Let child processes import the stand-in as TensorRT-LLM `version`, and find its commands.

    `directory` gets the metadata of the package.
    """
    info = directory / f"tensorrt_llm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n"
    )
    paths = [STANDINS, directory, ROOT, ROOT / "backends" / "python"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    binaries = [STANDINS / "bin", Path(sys.executable).parent, os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, binaries)))
    monkeypatch.setattr(installation, "EXAMPLES", (STANDINS / "examples",))


def save_checkpoint(directory: Path, *, architecture: str, vocab_size: int) -> Path:
    """Write the parts of a Hugging Face checkpoint that a conversion by the stand-in reads."""
    directory.mkdir(parents=True)
    config = {
        "architectures": [architecture],
        "vocab_size": vocab_size,
        "max_position_embeddings": 131072,
    }
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory
