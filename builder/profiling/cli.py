"""The command line of `specdec build profile`, and the server that it measures."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.errors import BuildError
from builder.parameters import parameters_of, set_parameters
from builder.profiling.load import prompts_of, put_on, ways
from builder.profiling.report import report
from clients import GrpcClient, SpecdecError
from specdec.control.memory import Memory, MemoryMismatchError
from specdec.errors import ConfigurationError
from specdec.serving.control_plane import SAVE_PERIOD_S
from specdec.serving.launcher import LaunchError, TritonServer
from specdec.serving.manifest import load_manifest
from specdec.serving.parameters import own_config, read_parameters
from specdec.serving.settings import OrchestratorSettings

ORCHESTRATOR = "specdec"
"""Folder of the orchestrator in the model repository."""
PROFILE = "control_profile.json"
"""File of the profile, in the orchestrator's folder beside its config.pbtxt."""
PLAIN_SHARE = "0.5"
"""`control_share` of the measured server: half of the requests that leave the choice to the
controller run without speculation, so that plain steps are measured, too."""
REQUEST_TIMEOUT_S = 600.0
"""Seconds that a request may take."""
READY_TIMEOUT_S = 1800.0
"""Seconds that the server may take to be ready: large weights take long to load."""
CONFIG = "config.pbtxt"
FAILURES = (
    BuildError,
    ConfigurationError,
    LaunchError,
    MemoryMismatchError,
    OSError,
    SpecdecError,
)
"""Errors that end the command with a message instead of a traceback."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A server to put the load on, and the file in which it keeps what it learns."""

    url: str
    """HOST:PORT of its gRPC service."""
    state: Path


def main(argv: list[str]) -> int:
    """Run the command; return 0, or 1 with the reason on stderr if there is no profile."""
    arguments = _parser().parse_args(argv)
    try:
        _profile(arguments)
    except FAILURES as error:
        print(f"specdec build profile: {error}", file=sys.stderr)
        return 1
    return 0


def _profile(arguments: argparse.Namespace) -> None:
    model: Path = arguments.model_repository / ORCHESTRATOR
    settings, loads = _settings(model), sorted(set(arguments.streams))
    _check(arguments, settings, loads)
    prompts, asked = prompts_of(arguments.prompts), ways(settings)
    output: Path = arguments.output or model / PROFILE
    # The output file is made before minutes of measuring, so that a bad path fails at once.
    with _place_for(output) as new:
        with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
            with _server(arguments, settings, Path(scratch)) as measured:
                with GrpcClient(measured.url, timeout_s=REQUEST_TIMEOUT_S) as client:
                    put_on(client, prompts, asked, loads, arguments.max_tokens)
                if arguments.server is not None:
                    _wait_for_a_save(measured.state)
            said = report(measured.state, settings, asked, loads)
            shutil.copyfile(measured.state, new)
        new.replace(output)
    if arguments.output is None:
        set_parameters(model, control_profile=f"../{PROFILE}")
    print(said)
    print(f"profile: {output}", file=sys.stderr)


def _settings(model: Path) -> OrchestratorSettings:
    """Return the orchestrator's settings. Raises BuildError if it takes no profile."""
    known = parameters_of(model)
    if "control_profile" not in known:
        raise BuildError(
            f"{model} has no parameter control_profile: add the line that "
            "model_repository/specdec/config.pbtxt of this release has, or render it anew"
        )
    parameters = {name: {"string_value": value} for name, value in known.items()}
    return read_parameters(
        OrchestratorSettings, own_config({"name": model.name, "parameters": parameters})
    )


def _config(arguments: argparse.Namespace) -> Path:
    return Path(arguments.model_repository, ORCHESTRATOR, CONFIG)


def _check(arguments: argparse.Namespace, settings: OrchestratorSettings, loads: list[int]) -> None:
    """Raise BuildError for settings, loads or options that cannot be measured."""
    if settings.is_llmapi or not settings.max_draft_len:
        raise BuildError("the engine takes no drafts: a controller has nothing to choose")
    if not 1 <= loads[0] <= loads[-1] <= settings.inflight_limit:
        raise BuildError(
            f"--streams go from 1 to the inflight_limit, {settings.inflight_limit}; given "
            f"{', '.join(map(str, loads))}"
        )
    if arguments.output is None and not os.access(_config(arguments), os.W_OK):
        raise BuildError(f"{_config(arguments)} cannot be written; name an --output")
    if arguments.server is None:
        manifest = load_manifest(arguments.model_repository)
        if arguments.state is not None:
            raise BuildError("--state belongs to --server")
        if manifest is not None and manifest.tensorrt_llm:
            raise BuildError(
                f"{arguments.model_repository} has compiled engines, which its launch.sh starts: "
                "start it with a control_state_file, and give --server, --state and --output"
            )
    elif arguments.state is None or arguments.output is None:
        raise BuildError("--server needs --state, its control_state_file, and --output")
    else:
        _wait_for_a_save(arguments.state)
        Memory.found(arguments.state)


@contextmanager
def _place_for(output: Path) -> Iterator[Path]:
    """Yield a new file beside `output`, to be renamed to it. Raises BuildError."""
    if output.is_dir():
        raise BuildError(f"{output} is a folder; --output names a file")
    new = output.with_name(f"{output.name}.new")
    try:
        new.touch()
    except OSError as error:
        raise BuildError(f"{error}; --output names a file that can be written") from error
    try:
        yield new
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _server(
    arguments: argparse.Namespace, settings: OrchestratorSettings, scratch: Path
) -> Iterator[Measured]:
    """Yield the running server of --server; without that option, start one.

    A started server uses the repository's engines and keeps its state in `scratch`.
    """
    if arguments.server is not None:
        yield Measured(arguments.server, arguments.state)
        return
    state, copy = scratch / PROFILE, scratch / "repository"
    _link(arguments.model_repository, copy)
    set_parameters(
        copy / ORCHESTRATOR,
        speculation="auto",
        speculation_schedule="",
        control_share=PLAIN_SHARE,
        control_state_file=str(state),
        control_profile="",
        prompt_log_dir="",
    )
    limit = settings.inflight_limit
    with TritonServer(copy, inflight_limit=limit, ready_timeout_s=READY_TIMEOUT_S) as server:
        yield Measured(server.grpc_url, state)


def _link(repository: Path, copy: Path) -> None:
    """Link the models of `repository` into `copy`; the orchestrator's config.pbtxt is copied.

    Other orchestrators are left out, because another server may be writing their files.
    """
    (copy / ORCHESTRATOR).mkdir(parents=True)
    for entry in repository.iterdir():
        config = entry / CONFIG
        is_another = config.exists() and "control_state_file" in config.read_text("utf-8")
        if entry.name != ORCHESTRATOR and not is_another:
            (copy / entry.name).symlink_to(entry.resolve())
    for entry in (repository / ORCHESTRATOR).iterdir():
        if entry.name == CONFIG:
            (copy / ORCHESTRATOR / CONFIG).write_text(entry.read_text("utf-8"), "utf-8")
        else:
            (copy / ORCHESTRATOR / entry.name).symlink_to(entry.resolve())


def _wait_for_a_save(state: Path) -> None:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec build profile",
        description="Put a server under load in every way that its controller may choose, for some "
        "minutes, and keep what the controller has learned: what passes, guesses and prompts cost "
        "at which load, and how many guesses stand. A server with this profile chooses well from "
        "its first request on; without one it learns the same as it serves.",
    )
    parser.add_argument(
        "--model-repository",
        type=Path,
        default=Path("model_repository"),
        metavar="PATH",
        help="default: %(default)s; a server over a copy of it is started",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help='{"prompt": text} a line, "task" beside it if known (default: some of ours)',
    )
    parser.add_argument(
        "--streams",
        type=int,
        nargs="+",
        default=[1, 4, 16],
        metavar="N",
        help="loads to measure (default: 1 4 16)",
    )
    parser.add_argument("--max-tokens", type=int, default=64, metavar="N", help="of an answer")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=f"default: {PROFILE} in the repository's {ORCHESTRATOR}, whose control_profile is set",
    )
    parser.add_argument(
        "--server",
        metavar="HOST:PORT",
        help="a running server's gRPC port instead, as of compiled engines; for a better look at "
        "the target alone, start it with a control_share of 0.5",
    )
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="of --server: its control_state_file"
    )
    return parser
