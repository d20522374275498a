"""Serve the default pair with a real tritonserver, on the GPU or, in a rehearsal, on the CPU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from specdec.builder.config_file import set_parameters
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.gpu.folders import GpuFolders, home
from specdec.loadtest.gpu.step_report import StepOptions
from specdec.loadtest.kit.repository import with_drafts

DRAFTERS = ("lookup", "draft", "suffix", "tree", "auto")
"""Drafters that `bench exact` asks for by name.

The EAGLE-3 head is not among them: `kernels: graph` runs no head.
"""


@contextmanager
def served_pair(options: StepOptions, *, max_streams: int) -> Iterator[TritonServer]:
    """Serve a copy of the default pair for up to `max_streams` requests at once.

    On a GPU every engine replays CUDA graphs. In a rehearsal the same code runs on the CPU, where
    its passes are called instead of captured.
    """
    with TemporaryDirectory(prefix="specdec-gpu-") as scratch:
        repository = with_drafts(GpuFolders(home()).model_repository, Path(scratch))
        for engine in ("target", "draft"):
            set_parameters(
                repository / engine,
                device=options.device,
                kernels="graph",
                max_num_sequences=str(max_streams),
            )
        set_parameters(repository / "target", head_dir="")
        set_parameters(repository / "specdec", target_head_name="", inflight_limit=str(max_streams))
        # This `inflight_limit` also sets the number of BLS threads, three times as many.
        with TritonServer(repository, inflight_limit=max_streams) as server:
            yield server


def gpu_memory_mib() -> int | None:
    """Return the MiB in use on the first GPU, by all processes; None without a GPU."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(done.stdout.splitlines()[0])
