"""Find a tritonserver, and make the one of the PyPI wheel runnable without a container.

NVIDIA's container has `tritonserver` on PATH with its backends beside it. The wheel
`nvidia-pytriton` carries the same binary, but keeps the Python backend and the per-version stubs
apart, so a run directory joins them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

MAX_NUMPY_MAJOR = 1
"""The newest NumPy that the Python backend of the package nvidia-pytriton reads."""


class LaunchError(RuntimeError):
    """The server cannot be started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """A tritonserver binary; `wheel_directory` is None if it finds its own backends."""

    binary: Path
    wheel_directory: Path | None = None

    @property
    def library_directories(self) -> tuple[Path, ...]:
        """Directories that LD_LIBRARY_PATH needs: the wheel's libraries and libpython's."""
        if self.wheel_directory is None:
            return ()
        bundled = self.wheel_directory.parent.parent / "nvidia_pytriton.libs"
        # The stub links libpythonX.Y.so and dies at once, without a word to the client, if the
        # loader cannot find it.
        return bundled, Path(sysconfig.get_config_var("LIBDIR") or sys.base_prefix + "/lib")


def find_installation() -> TritonInstallation:
    """Return the tritonserver on PATH, else the wheel's.

    Raises LaunchError if there is neither.
    """
    on_path = shutil.which("tritonserver")
    if on_path is not None:
        return TritonInstallation(Path(on_path))
    spec = importlib.util.find_spec("pytriton")  # located, not imported: it starts threads
    if spec is not None and spec.submodule_search_locations:
        wheel_directory = Path(next(iter(spec.submodule_search_locations))) / "tritonserver"
        binary = wheel_directory / "bin" / "tritonserver"
        if binary.is_file():
            return TritonInstallation(binary, wheel_directory)
    raise LaunchError(
        "no tritonserver: neither on PATH nor in the package nvidia-pytriton; run `make setup`, "
        "or work inside NVIDIA's container"
    )


def assemble_backend_directory(installation: TritonInstallation, run_directory: Path) -> Path:
    """Join backend, utilities and the running Python's stub under run_directory/backends.

    Returns the directory for --backend-directory. Raises LaunchError if the wheel has no stub for
    this Python version, or if NumPy is one that the stub cannot read.
    """
    if installation.wheel_directory is None:
        raise LaunchError(f"{installation.binary} finds its own backends; nothing to assemble")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stubs = installation.wheel_directory / "python_backend_stubs"
    stub = stubs / version / "triton_python_backend_stub"
    if not stub.is_file():
        known = ", ".join(sorted(directory.name for directory in stubs.glob("*.*")))
        raise LaunchError(f"no Python backend stub for Python {version}; the wheel has {known}")
    # The stub was built with a pybind11 that knows NumPy 1 only. With NumPy 2 it loads, takes
    # wrong strides for those of its arrays, and dies at the first request.
    numpy = metadata.version("numpy")
    if int(numpy.partition(".")[0]) > MAX_NUMPY_MAJOR:
        raise LaunchError(
            f"numpy {numpy} does not work with the Python backend of the package nvidia-pytriton; "
            f"install numpy<{MAX_NUMPY_MAJOR + 1}"
        )
    source = installation.wheel_directory / "backends" / "python"
    backends = run_directory / "backends"
    python_backend = backends / "python"
    python_backend.mkdir(parents=True)
    for file in (
        source / "libtriton_python.so",
        source / "triton_python_backend_utils.py",
        stub,
    ):
        (python_backend / file.name).symlink_to(file)
    return backends


def server_environment(
    installation: TritonInstallation, base: dict[str, str] | None = None
) -> dict[str, str]:
    """Return the environment for tritonserver: `base` (default: ours) with search paths in front.

    Settings for threads and offline use are added only where the user has none.
    """
    environment = dict(os.environ if base is None else base)
    # The embedded interpreter takes its packages from the first python on PATH.
    _prepend(environment, "PATH", Path(sys.executable).parent)
    for directory in reversed(installation.library_directories):
        _prepend(environment, "LD_LIBRARY_PATH", directory)
    num_cpus = str(len(os.sched_getaffinity(0)))
    defaults = {
        "OMP_NUM_THREADS": num_cpus,  # the machine's count, not the container's, is the default
        "MKL_NUM_THREADS": num_cpus,
        # Workers of one model must not spin on the cores that carry its answer away.
        "GOMP_SPINCOUNT": "10000",
        "TOKENIZERS_PARALLELISM": "false",  # request threads are the parallelism
        "HF_HUB_OFFLINE": "1",  # a server must not reach for the network
        "TRANSFORMERS_OFFLINE": "1",
    }
    return defaults | environment


def _prepend(environment: dict[str, str], name: str, directory: Path) -> None:
    rest = environment.get(name)
    environment[name] = f"{directory}{os.pathsep}{rest}" if rest else str(directory)
