"""`specdec build`: fill model repositories, check and render pairs, train drafts, measure costs."""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from dataclasses import dataclass
from typing import Protocol, cast

from specdec.builder.errors import BuildError


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
        "specdec.builder.repository.pair",
        "download, check and convert a pair's weights into the model repository",
    ),
    "check": Command(
        "specdec.builder.checking.cli",
        "say whether a pair can be built and will fit, before anything is built",
    ),
    "compile": Command(
        "specdec.builder.tensorrt_llm.cli",
        "make a pair's engines with TensorRT-LLM; finished steps are skipped",
    ),
    "render": Command(
        "specdec.builder.rendering.cli",
        "write a whole model repository, with a script that starts it",
    ),
    "manifest": Command(
        "specdec.builder.rendering.manifest", "record again what a rendered repository holds"
    ),
    "add-draft": Command(
        "specdec.builder.repository.add_draft", "add a draft model to the repository"
    ),
    "add-head": Command(
        "specdec.builder.repository.add_head", "give the target an EAGLE-3 or Medusa head"
    ),
    "colocate": Command(
        "specdec.builder.repository.colocate",
        "write a model repository whose orchestrator runs the engines in its own process",
    ),
    "import": Command(
        "specdec.builder.importing.cli", "write a known model as a Hugging Face directory"
    ),
    "distill": Command(
        "specdec.builder.distill.cli", "train a small draft model from a target's answers"
    ),
    "eagle3": Command("specdec.builder.heads.cli:EAGLE3", "train an EAGLE-3 head for a target"),
    "medusa": Command("specdec.builder.heads.cli:MEDUSA", "train Medusa heads for a target"),
    "refresh": Command(
        "specdec.builder.refresh.cli",
        "train the served draft further and replace it on running servers",
    ),
    "profile": Command(
        "specdec.builder.profiling.cli", "measure what passes and drafts cost, for the controller"
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
