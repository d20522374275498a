"""The server that a profile measures: one that runs already, or one over a copy of a repository."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specdec.builder.config_file import set_parameters
from specdec.builder.errors import BuildError
from specdec.launch.triton_server import TritonServer
from specdec.steering.kept_measurements import SAVE_PERIOD_S

ORCHESTRATOR = "specdec"
"""Folder of the orchestrator in the model repository."""
CONFIG = "config.pbtxt"
STATE = "control_state.json"
PLAIN_SHARE = "0.5"
"""`control_share` of the measured server: half of the requests that leave the choice to the
controller run without speculation, so that plain steps are measured, too."""
READY_TIMEOUT_S = 1800.0
"""Seconds that the server may take to be ready: large weights take long to load."""


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """A server to put under load, and the file in which it keeps what it learns."""

    url: str
    """HOST:PORT of its gRPC service."""
    state: Path


@contextmanager
def started_server(
    repository: Path, steering: str, inflight_limit: int, scratch: Path
) -> Iterator[MeasuredServer]:
    """Start a server over a copy of `repository`, with the same engines, and yield it.

    `steering` is the model in which the controller runs: the orchestrator, or a target with
    drafters inside. The copy and the server's state are in the folder `scratch`. The state is
    complete once the server has stopped, at the end of the block.
    """
    copy, state = scratch / "repository", scratch / STATE
    changed = {ORCHESTRATOR, steering}
    _link(repository, copy, changed)
    for model in changed:
        set_parameters(
            copy / model, speculation="auto", speculation_schedule="", control_share=PLAIN_SHARE
        )
    set_parameters(copy / ORCHESTRATOR, prompt_log_dir="")
    set_parameters(copy / steering, control_state_file=str(state), control_profile="")
    with TritonServer(
        copy, inflight_limit=inflight_limit, ready_timeout_s=READY_TIMEOUT_S
    ) as server:
        yield MeasuredServer(server.grpc_url, state)


def _link(repository: Path, copy: Path, changed: Collection[str]) -> None:
    """Link the models of `repository` into `copy`; those in `changed` get a config.pbtxt to change.

    Other models with a controller are left out, because another server may be writing their files.
    """
    copy.mkdir()
    for entry in repository.iterdir():
        config = entry / CONFIG
        has_controller = config.exists() and "control_state_file" in config.read_text("utf-8")
        if entry.name not in changed and not has_controller:
            (copy / entry.name).symlink_to(entry.resolve())
    for model in changed:
        (copy / model).mkdir()
        for entry in (repository / model).iterdir():
            if entry.name == CONFIG:
                (copy / model / CONFIG).write_text(entry.read_text("utf-8"), "utf-8")
            else:
                (copy / model / entry.name).symlink_to(entry.resolve())


def wait_for_save(state: Path) -> None:
    """Wait until the server has saved what it learned before this call.

    Raises BuildError if that takes more than two save periods.
    """
    now_s = time.time()
    while not state.exists() or state.stat().st_mtime < now_s:
        if time.time() > now_s + 2 * SAVE_PERIOD_S:
            raise BuildError(
                f"{state} is not written: it must be the running server's control_state_file"
            )
        time.sleep(0.5)
