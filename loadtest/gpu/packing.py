"""Collect what the machine with the GPU lacks, and pack it into an archive in parts.

The machine has Python, PyTorch and transformers (docs/gpu.md lists what we count on). It lacks
tritonserver, some packages and all weights. The stub of Triton's Python backend reads arrays of
NumPy 1 only, so NumPy 1 travels too.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from specdec.builder.importing.packages import CACHE, fetch
from specdec.builder.repository.pair_weights import Pair, load_pair
from specdec.builder.repository.weights import WEIGHTS
from specdec.folders import CHECKOUT
from specdec.loadtest.gpu.archive import Index, pack
from specdec.loadtest.gpu.folders import VLLM
from specdec.loadtest.gpu.training.prompts import prepare_prompts
from specdec.loadtest.kit.results import commit_of

MAX_PART_BYTES = 60_000_000
"""Largest part of the archive, in bytes.

A transfer holds 64 MiB, and a checkout without weights takes 5 MB of them.
"""
PACKAGES = ("numpy", "tritonclient", "python-rapidjson", "gguf")
"""Packages that the machine lacks or has in an unsuitable version; packed in our versions."""
VLLM_REQUIREMENTS = Path(__file__).with_name("vllm.txt")
"""vLLM's release for the machine's PyTorch, and what it needs."""
_LIBRARY_OF = """
import sys, sysconfig
name = sysconfig.get_config_var("INSTSONAME")
print("%d.%d" % sys.version_info[:2], sysconfig.get_config_var("LIBDIR") + "/" + name)
"""

Files = dict[str, Path]
"""Files of one member, by the path that they unpack to."""


class PackingError(RuntimeError):
    """Something to be packed is not here; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class MachinePython:
    """The Python that the machine runs: its version (`3.12`) and its shared library."""

    version: str
    library: Path

    @classmethod
    def ask(cls, interpreter: str) -> MachinePython:
        """Ask an interpreter of that version.

        Raises PackingError if it does not run or has no shared library.
        """
        try:
            found = subprocess.run(
                [interpreter, "-c", _LIBRARY_OF], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise PackingError(
                f"{interpreter} does not run; name a Python of the machine's version with --python"
            ) from error
        number, library = found.stdout.split()
        if not Path(library).is_file() or ".so" not in library:
            raise PackingError(
                f"{interpreter} has no shared library ({library}); Triton's Python backend needs "
                "one: name a Python that was built with --enable-shared"
            )
        return cls(number, Path(library))


def pack_all(
    out: Path,
    *,
    interpreter: str,
    model_repository: Path,
    questions: Sequence[Path] = (),
    with_vllm: bool = False,
    for_rehearsal: bool = False,
) -> Index:
    """Pack server, packages, weights and training prompts into an archive in `out`.

    `model_repository` must have been filled by `make setup`. `questions` are files of prompts that
    must not be trained on. `with_vllm` adds vLLM. An archive for a rehearsal is packed fast, with
    few prompts. Raises PackingError or BuildError if something to be packed is missing or cannot be
    downloaded.
    """
    python, pair = MachinePython.ask(interpreter), load_pair()
    with tempfile.TemporaryDirectory(prefix="specdec-gpu-") as scratch:
        work = Path(scratch)
        members = {
            "server": _server(python),
            "python": _library(python, work),
            "packages": _packages(python, own_packages(), work / "packages"),
            "target": _target(pair, model_repository / "target" / WEIGHTS),
            "stored": _stored(pair),
            "training": _training(work / "training", questions, few=for_rehearsal),
        }
        if with_vllm:
            members[VLLM] = _packages(python, vllm_packages(), work / "vllm")
        return pack(
            members,
            out,
            max_part_bytes=MAX_PART_BYTES,
            preset=0 if for_rehearsal else 6,
            commit=commit_of(CHECKOUT),
        )


def _server(python: MachinePython) -> Files:
    """Collect tritonserver with the stub for one version of Python.

    Stubs for other versions are left out, and so is the Python library that only they load.
    """
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise PackingError("the package nvidia-pytriton is not installed; run `make setup`")
    package = Path(next(iter(spec.submodule_search_locations)))
    server, libraries = package / "tritonserver", package.parent / "nvidia_pytriton.libs"
    stub = server / "python_backend_stubs" / python.version
    if not stub.is_dir():
        raise PackingError(f"nvidia-pytriton has no stub for Python {python.version}")
    folders = (server / "bin", server / "backends", stub)
    found = [path for folder in folders for path in _files(folder)]
    found += [path for path in _files(libraries) if not path.name.startswith("libpython")]
    return {f"site/{path.relative_to(package.parent)}": path for path in found}


def _library(python: MachinePython, work: Path) -> Files:
    """Copy the Python library without its debugging symbols, if `strip` is installed."""
    library = work / python.library.name
    shutil.copy(python.library, library)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
    return {f"lib/{library.name}": library}


def own_packages() -> list[str]:
    """Return PACKAGES with the versions that are installed here."""
    return [f"{name}=={version(name)}" for name in PACKAGES]


def vllm_packages() -> list[str]:
    """Return vLLM and the packages that it needs beside those of the machine, with versions."""
    lines = VLLM_REQUIREMENTS.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _packages(python: MachinePython, wanted: Sequence[str], site: Path) -> Files:
    """Download wheels for the machine's Python and unpack them in `site`, as an installer would.

    `wanted` are names with versions.
    """
    wheels = CHECKOUT / ".cache" / "gpu-wheels" / python.version / site.name
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", python.version]
    command += ["--dest", str(wheels), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PackingError(f"{' '.join(wanted)} cannot be downloaded: {done.stderr.strip()}")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return {f"site/{path.relative_to(site)}": path for path in _files(site) if _is_used(path)}


def _is_used(path: Path) -> bool:
    return "tests" not in path.parts and path.suffix not in {".a", ".pyi"}


def _target(pair: Pair, checkpoint: Path) -> Files:
    """Collect the target's quantised file, and the files of its checkpoint that are no weights."""
    if not checkpoint.is_dir():
        raise PackingError(f"{checkpoint} is not filled; run `make setup`")
    small = [path for path in _files(checkpoint) if path.suffix != ".safetensors"]
    files = {f"target/checkpoint/{path.name}": path for path in small}
    return {"target/model.gguf": fetch(pair.target.source, CACHE), **files}


def _stored(pair: Pair) -> Files:
    kept = {"draft": pair.draft, "eagle3": pair.head}
    return {
        f"stored/{name}/{path.name}": path
        for name, model in kept.items()
        if model is not None
        for path in _files(model.directory)
    }


def _training(folder: Path, questions: Sequence[Path], *, few: bool) -> Files:
    prepare_prompts(folder, CHECKOUT / ".cache" / "gpu-prompts", questions, few=few)
    return {f"training/{path.relative_to(folder)}": path for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
