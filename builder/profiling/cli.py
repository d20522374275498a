"""`specdec build profile`: the command line, and the server that is measured."""

from __future__ import annotations

import argparse
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
from builder.profiling.load import Prompt, prompts_of, put_on, ways
from builder.profiling.report import report
from clients import GrpcClient, SpecdecError
from specdec.control.memory import MemoryMismatchError
from specdec.errors import ConfigurationError
from specdec.serving.control_plane import SAVE_PERIOD_S
from specdec.serving.launcher import LaunchError, TritonServer
from specdec.serving.parameters import own_config, read_parameters
from specdec.serving.settings import OrchestratorSettings

ORCHESTRATOR = "specdec"
PROFILE = "control_profile.json"
"""In the orchestrator's folder, beside its config.pbtxt."""
PLAIN_SHARE = "0.5"
"""Of the controller's own requests, to see the target alone."""
REQUEST_TIMEOUT_S = 600.0
FAILURES = (BuildError, ConfigurationError, LaunchError, MemoryMismatchError, SpecdecError)


@dataclass(frozen=True, slots=True)
class Measured:
    """A server to put the load on, and where it keeps what it learns."""

    url: str
    state: Path


def main(argv: list[str]) -> int:
    """Return 0; 1 with the reason on stderr if there is no profile."""
    arguments = _parser().parse_args(argv)
    if (arguments.server is None) != (arguments.state is None):
        print("specdec build profile: --server and --state belong together", file=sys.stderr)
        return 1
    try:
        _profile(arguments)
    except FAILURES as error:
        print(f"specdec build profile: {error}", file=sys.stderr)
        return 1
    return 0


def _profile(arguments: argparse.Namespace) -> None:
    model = arguments.model_repository / ORCHESTRATOR
    settings, loads = _settings(model), sorted(set(arguments.streams))
    if settings.is_llmapi:
        raise BuildError("the engine speculates inside: a controller has nothing to choose")
    if not 1 <= loads[0] <= loads[-1] <= settings.inflight_limit:
        raise BuildError(
            f"--streams go from 1 to the inflight_limit, {settings.inflight_limit}; given "
            f"{', '.join(map(str, loads))}"
        )
    prompts: list[Prompt] = prompts_of(arguments.prompts)
    output: Path = arguments.output or model / PROFILE
    with tempfile.TemporaryDirectory(prefix="specdec.") as scratch:
        state = Path(scratch) / PROFILE
        with _server(arguments, Path(scratch) / "repository", state) as measured:
            with GrpcClient(measured.url, timeout_s=REQUEST_TIMEOUT_S) as client:
                put_on(client, prompts, ways(settings), loads, arguments.max_tokens)
            if arguments.server is not None:
                _wait_for_a_save(measured)
        print(report(measured.state, settings, loads))
        shutil.copyfile(measured.state, output)
    if arguments.output is None:
        set_parameters(model, control_profile=f"../{PROFILE}")
    print(f"profile: {output}", file=sys.stderr)


def _settings(model: Path) -> OrchestratorSettings:
    parameters = {name: {"string_value": value} for name, value in parameters_of(model).items()}
    config = {"name": model.name, "parameters": parameters}
    return read_parameters(OrchestratorSettings, own_config(config))


@contextmanager
def _server(arguments: argparse.Namespace, copy: Path, state: Path) -> Iterator[Measured]:
    """The one that runs, or one over the repository's engines that keeps its state in `state`."""
    if arguments.server is not None:
        yield Measured(arguments.server, arguments.state)
        return
    copy.mkdir()
    for model in arguments.model_repository.iterdir():
        if model.name != ORCHESTRATOR:
            (copy / model.name).symlink_to(model.resolve())
    shutil.copytree(arguments.model_repository / ORCHESTRATOR, copy / ORCHESTRATOR, symlinks=False)
    set_parameters(
        copy / ORCHESTRATOR,
        speculation="auto",
        speculation_schedule="",
        control_share=PLAIN_SHARE,
        control_state_file=str(state),
        control_profile="",
        prompt_log_dir="",
    )
    with TritonServer(copy) as server:
        yield Measured(server.grpc_url, state)


def _wait_for_a_save(measured: Measured) -> None:
    """Until the server has kept what it learned up to now."""
    now_s = time.time()
    while not measured.state.exists() or measured.state.stat().st_mtime < now_s:
        if time.time() > now_s + 2 * SAVE_PERIOD_S:
            raise BuildError(
                f"{measured.state} is not written: the server's control_state_file must be there"
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
        help="a running server's gRPC port instead, as of engines on several GPUs",
    )
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="of --server: its control_state_file"
    )
    return parser
