"""The command line of `specdec build profile`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from specdec.builder.config_file import parameters_of, set_parameters
from specdec.builder.errors import BuildError
from specdec.builder.profiling.load import choices_of, prompts_of, send_load
from specdec.builder.profiling.report import report
from specdec.builder.profiling.server import (
    CONFIG,
    ORCHESTRATOR,
    MeasuredServer,
    started_server,
    wait_for_save,
)
from specdec.builder.repository.options import add_repository_option
from specdec.clients import GrpcClient, SpecdecError
from specdec.deployment.manifest import load_manifest
from specdec.errors import ConfigurationError
from specdec.launch.installation import LaunchError
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import own_config, read_parameters
from specdec.steering.state_file import StateFile, StateFileMismatchError

PROFILE = "control_profile.json"
"""File of the profile, beside the config.pbtxt of the model in which the controller runs."""
REQUEST_TIMEOUT_S = 600.0
"""Seconds that a request may take."""
FAILURES = (ConfigurationError, LaunchError, StateFileMismatchError, OSError, SpecdecError)
"""Errors that end the command with a message instead of a traceback."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `profile` to the parser."""
    parser.description = (
        "Put a server under load with every choice that its controller may make, for some minutes, "
        "and keep what the controller has learned: what passes, draft tokens and prompts cost at "
        "each load, and how many draft tokens are accepted. A server with this profile chooses "
        "well from its first request on; without one it learns the same while it serves."
    )
    add_repository_option(parser)
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help='{"prompt": text} on each line, with "task" if it is known (default: some of the '
        "shipped prompts)",
    )
    parser.add_argument(
        "--streams",
        type=int,
        nargs="+",
        default=[1, 4, 16],
        metavar="N",
        help="loads to measure: requests at once (default: 1 4 16)",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=64, metavar="N", help="length of an answer"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=f"default: {PROFILE} beside the config.pbtxt of the model in which the controller "
        f"runs, whose control_profile is set: {ORCHESTRATOR}, or a target with drafters inside",
    )
    _add_server(parser)


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        metavar="HOST:PORT",
        help="gRPC port of a running server to measure, such as one with compiled engines; a "
        "control_share of 0.5 lets it measure the target without speculation better (default: "
        "start a server over a copy of the repository)",
    )
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="the control_state_file of --server"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the profile; return 0. Raises BuildError if there is no profile."""
    try:
        _profile(arguments)
    except FAILURES as error:
        raise BuildError(str(error)) from error
    return 0


def _profile(arguments: argparse.Namespace) -> None:
    repository: Path = arguments.model_repository
    settings, loads = _settings(repository / ORCHESTRATOR), sorted(set(arguments.streams))
    model = repository / _steering_model(settings)
    _check_release(model)
    _check(arguments, settings, loads, model / CONFIG)
    prompts, choices = prompts_of(arguments.prompts), choices_of(settings)
    output: Path = arguments.output or model / PROFILE
    # The output file is made before minutes of measuring, so that a bad path fails at once.
    with _new_file(output) as new, tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        with _server(arguments, settings, Path(scratch)) as server:
            print("profile: measuring, which takes some minutes", file=sys.stderr)
            with GrpcClient(server.url, timeout_s=REQUEST_TIMEOUT_S) as client:
                send_load(client, prompts, choices, loads, arguments.max_tokens)
            if arguments.server is not None:
                wait_for_save(server.state)
        tables = report(server.state, settings, choices, loads)
        shutil.copyfile(server.state, new)
        new.replace(output)
    if arguments.output is None:
        set_parameters(model, control_profile=f"../{PROFILE}")
    print(tables)
    print(f"profile: {output}", file=sys.stderr)


def _server(
    arguments: argparse.Namespace, settings: OrchestratorSettings, scratch: Path
) -> AbstractContextManager[MeasuredServer]:
    """Return the running server of --server; without that option, one to be started."""
    if arguments.server is not None:
        return nullcontext(MeasuredServer(arguments.server, arguments.state))
    print("profile: starting a server over a copy of the repository", file=sys.stderr)
    steering, limit = _steering_model(settings), settings.admission.inflight_limit
    return started_server(arguments.model_repository, steering, limit, scratch)


def _steering_model(settings: OrchestratorSettings) -> str:
    """Return the model in which the controller runs."""
    engines = settings.engines
    return engines.target if engines.has_drafters_inside else ORCHESTRATOR


def _check_release(model: Path) -> None:
    """Raise BuildError for a model of an earlier release, which takes no profile."""
    if "control_profile" not in parameters_of(model):
        raise BuildError(
            f"{model} has no parameter control_profile: add the line that "
            "model_repository/specdec/config.pbtxt of this release has, or render it again"
        )


def _settings(model: Path) -> OrchestratorSettings:
    """Return the orchestrator's settings."""
    parameters = {name: {"string_value": value} for name, value in parameters_of(model).items()}
    return read_parameters(
        OrchestratorSettings, own_config({"name": model.name, "parameters": parameters})
    )


def _check(
    arguments: argparse.Namespace,
    settings: OrchestratorSettings,
    loads: Sequence[int],
    config: Path,
) -> None:
    """Raise BuildError for settings, loads or options that cannot be measured.

    `config` is the file whose control_profile is set without an --output.
    """
    if settings.engines.is_llmapi or not settings.engines.max_draft_len:
        raise BuildError("the engine takes no drafts: a controller has nothing to choose")
    limit = settings.admission.inflight_limit
    if not 1 <= loads[0] <= loads[-1] <= limit:
        raise BuildError(
            f"--streams go from 1 to the inflight_limit, {limit}; given "
            f"{', '.join(map(str, loads))}"
        )
    if arguments.output is None and not os.access(config, os.W_OK):
        raise BuildError(f"{config} cannot be written; name an --output")
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
        wait_for_save(arguments.state)
        StateFile.as_written(arguments.state)


@contextmanager
def _new_file(output: Path) -> Iterator[Path]:
    """Yield a new file beside `output`, to be renamed to it.

    Raises BuildError if `output` is a folder or no file can be written beside it.
    """
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
