"""How much processor time a server has taken: what a noisy clock on the wall does not tell."""

from __future__ import annotations

from collections.abc import Collection

import psutil


def cpu_s(pid: int, without: Collection[str] = ()) -> float:
    """Of tritonserver and the models that run in processes of their own, so far.

    `without`: models that are left out.
    """
    server = psutil.Process(pid)
    stubs = [
        each
        for each in server.children(recursive=True)
        if not (without and _model(each) in without)
    ]
    times = [each.cpu_times() for each in (server, *stubs)]
    return float(sum(each.user + each.system for each in times))


def _model(process: psutil.Process) -> str:
    """Of a process of Triton's Python backend, whose last argument but one is NAME_GROUP_NUMBER."""
    command = process.cmdline()
    return command[-2].rsplit("_", 2)[0] if len(command) > 1 else ""
