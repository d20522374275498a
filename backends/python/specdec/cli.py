"""The `specdec` command: it imports the module of a subcommand and runs it."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass

from specdec import __version__
from specdec.extras import advice_on

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand of `specdec`, imported only when it is used."""

    module: str
    """Name of a module that has `main(argv: list[str]) -> int`."""
    summary: str
    """One line for the help text."""
    extra: str
    """Name of the extra in pyproject.toml with the packages that the subcommand needs."""


COMMANDS = {
    "serve": Command(
        "specdec.launch.launcher", "run tritonserver with the model repository", "server"
    ),
    "gateway": Command(
        "specdec.gateway.cli", "OpenAI-compatible server in front of tritonserver", "gateway"
    ),
    "health": Command("specdec.health.cli", "ask whether a running server is ready", "server"),
    "build": Command(
        "specdec.builder.cli", "build the default pair, import or distill a model", "torch"
    ),
    "chat": Command(
        "specdec.clients.chat", "talk to the model, accepted draft tokens shown", "clients"
    ),
    "generate": Command("specdec.clients.generate", "send one prompt, print the answer", "clients"),
    "load": Command(
        "specdec.loadtest.load.cli", "Locust load test with limits and reports", "loadtest"
    ),
    "plan": Command(
        "specdec.loadtest.plan.cli", "what-if: alpha, costs, k, load, kind of draft", "loadtest"
    ),
    "evaluate": Command(
        "specdec.loadtest.evaluate.cli",
        "measure prompts by task before deploying: advice",
        "loadtest",
    ),
    "report": Command(
        "specdec.loadtest.report.cli", "a page on acceptance, gain and time", "loadtest"
    ),
    "bench": Command(
        "specdec.loadtest.lab.benches", "side-by-side measurements, exactness check", "loadtest"
    ),
}


def usage() -> str:
    """Return the help text: one line for each subcommand."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: specdec COMMAND [options]",
            "",
            "Speculative decoding for NVIDIA Triton.",
            "",
            *lines,
            "",
            "`specdec COMMAND --help` tells more; `specdec --version` prints the version.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run the subcommand named by the first argument and return its exit status.

    Statuses of this function itself are 1 for a missing package, 2 for an unknown or missing
    subcommand, and 130 for an interruption by Ctrl-C. `argv` defaults to the arguments of the
    process.
    """
    arguments = sys.argv[1:] if argv is None else argv
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name in {"-h", "--help", "help"}:
        print(usage())
        return 0
    if name == "--version":
        print(__version__)
        return 0
    command = COMMANDS.get(name)
    if command is None:
        problem = f"unknown command {name!r}" if name else "no command given"
        print(f"specdec: {problem}; one of: {', '.join(COMMANDS)}", file=sys.stderr)
        return EXIT_USAGE
    try:
        status: int = importlib.import_module(command.module).main(rest)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        advice = advice_on(error, command.extra)
        if advice is None:
            raise
        print(f"specdec {name}: {advice}", file=sys.stderr)
        return EXIT_FAILURE
    return status
