"""`specdec build`: fill model repositories, check and render pairs, train drafts, measure costs."""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from dataclasses import dataclass
from typing import Protocol, cast

from builder.errors import BuildError

EXTRAS = {
    "accelerate": "server",
    "gguf": "server",
    "grpc": "clients",
    "tomli": "server",
    "tritonclient": "clients",
}
"""Extra of pyproject.toml that installs a module; the extra `torch` installs the others."""
OWN_PACKAGES = ("builder", "clients", "specdec")


class Runnable(Protocol):
    """The implementation of a command: a module, or an object in one."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options to its parser."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return its exit status. Raises BuildError if that fails."""


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command, imported only when it is used, because torch is slow to import."""

    implementation: str
    """Module of its `Runnable`, or module and name with a colon between them."""
    summary: str
    """Line for the help text."""

    def load(self) -> Runnable:
        """Import the implementation."""
        return cast("Runnable", pkgutil.resolve_name(self.implementation))


COMMANDS = {
    "pair": Command(
        "builder.repository.pair",
        "download, check and convert a pair's weights into the model repository",
    ),
    "check": Command(
        "builder.checking.cli",
        "say whether a pair can be built and will fit, before anything is built",
    ),
    "compile": Command(
        "builder.tensorrt_llm.cli",
        "make a pair's engines with TensorRT-LLM; finished steps are skipped",
    ),
    "render": Command(
        "builder.rendering.cli", "write a whole model repository, with a script that starts it"
    ),
    "manifest": Command(
        "builder.rendering.manifest", "record again what a rendered repository holds"
    ),
    "add-draft": Command("builder.repository.add_draft", "add a draft model to the repository"),
    "add-head": Command("builder.repository.add_head", "give the target an EAGLE-3 or Medusa head"),
    "colocate": Command(
        "builder.repository.colocate",
        "write a model repository whose orchestrator runs the engines in its own process",
    ),
    "import": Command("builder.importing.cli", "write a known model as a Hugging Face directory"),
    "distill": Command("builder.distill.cli", "train a small draft model from a target's answers"),
    "eagle3": Command("builder.heads.cli:EAGLE3", "train an EAGLE-3 head for a target"),
    "medusa": Command("builder.heads.cli:MEDUSA", "train Medusa heads for a target"),
    "refresh": Command(
        "builder.refresh.cli", "train the served draft further and replace it on running servers"
    ),
    "profile": Command(
        "builder.profiling.cli", "measure what passes and drafts cost, for the controller"
    ),
}


def main(argv: list[str]) -> int:
    """Run the command and return its exit status: 0, or 1 with the reason on stderr.

    Some commands have other statuses too. A wrong option exits with 2.
    """
    # Only environment variables keep the model loaders offline and quiet.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TQDM_DISABLE", "" if sys.stderr.isatty() else "1")
    name = argv[0] if argv else ""
    try:
        arguments = parser(name).parse_args(argv)
        return COMMANDS[arguments.command].load().run(arguments)
    except BuildError as error:
        print(f"specdec build {name}: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OWN_PACKAGES:
            raise
        extra = EXTRAS.get(missing, "torch")
        print(
            f"specdec build {name}: the module {missing!r} is missing; "
            f"`pip install 'specdec-triton[{extra}]'` installs it",
            file=sys.stderr,
        )
    return 1


def parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of `specdec build`; of the sub-commands, only `name` has its options."""
    top = argparse.ArgumentParser(prog="specdec build", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for each, command in COMMANDS.items():
        own = commands.add_parser(each, help=command.summary, description=command.summary)
        if each == name:
            command.load().add_options(own)
    return top


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
