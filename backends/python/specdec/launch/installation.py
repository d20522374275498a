"""Find a tritonserver, and make the one in the PyPI wheel run without a container.

NVIDIA's container has `tritonserver` on PATH, with its backends where it looks for them. The wheel
`nvidia-pytriton` has the same binary, but keeps the Python backend apart from the stubs, one for
each Python version. A run directory joins them.
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

from specdec.extras import installation_of

MAX_NUMPY_MAJOR = 1
"""The newest major version of NumPy that works with the Python backend of nvidia-pytriton."""


class LaunchError(RuntimeError):
    """The server cannot be started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """A tritonserver binary. `wheel_directory` is None if the binary finds its own backends."""

    binary: Path
    wheel_directory: Path | None = None

    @property
    def library_directories(self) -> tuple[Path, ...]:
        """Directories that LD_LIBRARY_PATH needs: those of the wheel's libraries and of libpython.

        There are none outside the wheel.
        """
        if self.wheel_directory is None:
            return ()
        bundled = self.wheel_directory.parent.parent / "nvidia_pytriton.libs"
        # The stub links libpythonX.Y.so. If the loader cannot find it, the stub dies at once and
        # the client is told nothing.
        return bundled, Path(sysconfig.get_config_var("LIBDIR") or sys.base_prefix + "/lib")


def find_installation() -> TritonInstallation:
    """Return the tritonserver on PATH, else that of the wheel.

    Raises LaunchError if there is neither.
    """
    on_path = shutil.which("tritonserver")
    if on_path is not None:
        return TritonInstallation(Path(on_path))
    # The wheel's package is found but not imported, because an import starts threads.
    spec = importlib.util.find_spec("pytriton")
    if spec is not None and spec.submodule_search_locations:
        wheel_directory = Path(next(iter(spec.submodule_search_locations))) / "tritonserver"
        binary = wheel_directory / "bin" / "tritonserver"
        if binary.is_file():
            return TritonInstallation(binary, wheel_directory)
    raise LaunchError(
        "no tritonserver: neither on PATH nor in the package nvidia-pytriton; "
        f"{installation_of('server')} installs it, and NVIDIA's container has it"
    )


def assemble_backend_directory(installation: TritonInstallation, run_directory: Path) -> Path:
    """Link the Python backend, its utilities and this Python's stub into `run_directory`/backends.

    Returns that folder, for --backend-directory. Raises LaunchError if the installation is not the
    wheel's, if the wheel has no stub for this Python version, or if NumPy is too new for the stub.
    """
    if installation.wheel_directory is None:
        raise LaunchError(f"{installation.binary} finds its own backends; nothing to assemble")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stubs = installation.wheel_directory / "python_backend_stubs"
    stub = stubs / version / "triton_python_backend_stub"
    if not stub.is_file():
        known = ", ".join(sorted(directory.name for directory in stubs.glob("*.*")))
        raise LaunchError(f"no Python backend stub for Python {version}; the wheel has {known}")
    # The stub was built with a pybind11 that knows only NumPy 1. With NumPy 2 it loads, reads the
    # strides of arrays wrongly, and dies at the first request.
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
    """Return the environment for tritonserver: `base` with search paths added in front.

    `base` is this process's environment by default. Settings for threads and offline use are added
    only where `base` has none.
    """
    environment = dict(os.environ if base is None else base)
    # The embedded interpreter takes its packages from the first python on PATH.
    _prepend(environment, "PATH", Path(sys.executable).parent)
    for directory in reversed(installation.library_directories):
        _prepend(environment, "LD_LIBRARY_PATH", directory)
    num_cpus = str(len(os.sched_getaffinity(0)))
    defaults = {
        # Without these, the number of the machine's cores is taken, not the container's.
        "OMP_NUM_THREADS": num_cpus,
        "MKL_NUM_THREADS": num_cpus,
        # A model's idle workers must not spin on cores that are needed to send its answer.
        "GOMP_SPINCOUNT": "10000",
        # NumPy solves systems of a dozen equations for the controller. While the engines use all
        # cores, several threads would wait milliseconds for one another.
        "OPENBLAS_NUM_THREADS": "1",
        # Requests have threads of their own already.
        "TOKENIZERS_PARALLELISM": "false",
        # A server must not use the network to load models.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    return defaults | environment


def _prepend(environment: dict[str, str], name: str, directory: Path) -> None:
    rest = environment.get(name)
    environment[name] = f"{directory}{os.pathsep}{rest}" if rest else str(directory)
