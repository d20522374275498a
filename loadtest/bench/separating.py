"""Two engine models of a running server on a core each."""

from __future__ import annotations

import os
from pathlib import Path

from specdec.serving.installation import LaunchError


def separate(server_pid: int, *models: str) -> tuple[int, ...]:
    """Give each model's process, with all its threads, a core of its own; return the cores.

    Raises LaunchError where there are fewer cores than models, or no such model.
    """
    cores = sorted(os.sched_getaffinity(0))[: len(models)]
    if len(cores) < len(models):
        raise LaunchError(f"{len(models)} models need as many cores; there are {len(cores)}")
    for model, core in zip(models, cores, strict=True):
        for thread in (_process(server_pid, model) / "task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})
    return tuple(cores)


def _process(server_pid: int, model: str) -> Path:
    """The folder in /proc of the process that runs the model's first instance."""
    for path in Path(f"/proc/{server_pid}/task").glob("*/children"):
        for child in path.read_text("ascii").split():
            process = Path("/proc", child)
            if f"{model}_0_0".encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return process
    raise LaunchError(f"the server {server_pid} has no process of the model {model!r}")
