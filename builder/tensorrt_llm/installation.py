"""Finding this machine's TensorRT-LLM, which another Python than ours may have."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from specdec.builder.description import Runtime
from specdec.builder.errors import BuildError
from specdec.builder.tensorrt_llm.flags import BUILD

EXAMPLES = (Path("/app/examples"), Path("/app/tensorrt_llm/examples"))
"""Folders in which NVIDIA's containers keep the converters of heads."""
_ASK = "from importlib.metadata import version; print(version('tensorrt_llm'))"


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The programs of a TensorRT-LLM installation that a compilation calls."""

    version: str
    """Release of TensorRT-LLM."""
    python: str
    """Python interpreter that can import tensorrt_llm."""
    build: str
    """Path of the command trtllm-build."""
    examples: Path
    """Folder of TensorRT-LLM's examples, with the converters of heads."""


def described_toolkit(version: str) -> Toolkit:
    """Return the toolkit as in NVIDIA's container, for a dry run on another machine."""
    return Toolkit(version, "python3", BUILD, EXAMPLES[0])


def find_toolkit(runtime: Runtime) -> Toolkit:
    """Find TensorRT-LLM of exactly the release in `runtime`: only that one can load the engines.

    Raises BuildError if TensorRT-LLM is missing, is of another release, or has no trtllm-build. The
    message then recommends the container in `runtime`.
    """
    for python in _interpreters():
        found = _version_in(python)
        if found is None:
            continue
        if found != runtime.version:
            raise BuildError(
                f"this is TensorRT-LLM {found}, the pair is for {runtime.version}: run this in "
                f"{runtime.image}, or give --version {found}"
            )
        beside = Path(python).with_name(BUILD)
        build = str(beside) if beside.is_file() else shutil.which(BUILD)
        if build is None:
            raise BuildError(f"TensorRT-LLM {found} is installed, but {BUILD} is not on PATH")
        examples = next((each for each in EXAMPLES if each.is_dir()), EXAMPLES[0])
        return Toolkit(found, python, build, examples)
    raise BuildError(
        f"TensorRT-LLM is not installed: run this in {runtime.image}, for instance in the image "
        "that builder/deploy/Dockerfile makes of it\n"
        "  docker run --rm --gpus all --shm-size=8g --user $(id -u) -v $PWD:/work -w /work "
        "specdec build compile …\n"
        "or print the commands with --dry-run"
    )


def _interpreters() -> list[str]:
    """Return interpreters to try. Ours is last, as its packages may not suit TensorRT-LLM."""
    found = (shutil.which("python3"), shutil.which("python"), sys.executable)
    return list(dict.fromkeys(each for each in found if each))


def _version_in(python: str) -> str | None:
    """Return the release of TensorRT-LLM that the interpreter has, or None."""
    result = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None
