"""Find the TensorRT-LLM of this machine, which need not be that of this Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from builder.errors import BuildError
from builder.rendering.launch import CONTAINER
from builder.tensorrt_llm.flags import BUILD

EXAMPLES = (Path("/app/examples"), Path("/app/tensorrt_llm/examples"))
"""Where NVIDIA's containers keep the converters of heads."""
_ASK = "from importlib.metadata import version; print(version('tensorrt_llm'))"


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What a compilation calls."""

    version: str
    python: str
    """An interpreter that imports tensorrt_llm."""
    build: str
    """The command trtllm-build."""
    examples: Path


def described_toolkit(version: str) -> Toolkit:
    """What NVIDIA's container has, for a dry run elsewhere."""
    return Toolkit(version, "python3", BUILD, EXAMPLES[0])


def find_toolkit(version: str, container: str) -> Toolkit:
    """Find TensorRT-LLM of exactly this release. Raises BuildError.

    An engine is loaded by the release that built it and by no other.
    """
    for python in _interpreters():
        found = _version_in(python)
        if found is None:
            continue
        if found != version:
            raise BuildError(
                f"this is TensorRT-LLM {found}, the pair is for {version}: run it in "
                f"{CONTAINER.format(container)}, or give --version {found}"
            )
        beside = Path(python).with_name(BUILD)
        build = str(beside) if beside.is_file() else shutil.which(BUILD)
        if build is None:
            raise BuildError(f"TensorRT-LLM {found} is installed, but {BUILD} is not on PATH")
        examples = next((each for each in EXAMPLES if each.is_dir()), EXAMPLES[0])
        return Toolkit(found, python, build, examples)
    raise BuildError(
        f"TensorRT-LLM is not installed: run this in {CONTAINER.format(container)}, for instance "
        "in the image that builder/deploy/Dockerfile makes of it\n"
        "  docker run --rm --gpus all --shm-size=8g --user $(id -u) -v $PWD:/work -w /work "
        "specdec build compile …\n"
        "or see what would be done with --dry-run"
    )


def _interpreters() -> list[str]:
    """Our own last: where it sees the system's TensorRT-LLM, it has other packages beside it."""
    found = (shutil.which("python3"), shutil.which("python"), sys.executable)
    return list(dict.fromkeys(each for each in found if each))


def _version_in(python: str) -> str | None:
    result = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None
