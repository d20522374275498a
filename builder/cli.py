"""`specdec build`: fill the model repository, add drafts, place engines, import, train, measure."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from builder.add_draft import add_draft
from builder.add_head import add_head
from builder.assembly import build_pair, import_model
from builder.colocate import colocate
from builder.description.engine import TRANSLATIONS
from builder.errors import BuildError
from builder.pair import DEFAULT_PAIR, known_models, load_pair
from builder.pair_commands import add_pair_commands
from builder.rendering import cli as rendering_cli

CACHE = Path(".cache/models")
OWN_OPTIONS = {
    "distill": ("builder.distill.cli", "torch"),
    "eagle3": ("builder.heads.cli", "torch"),
    "medusa": ("builder.heads.cli", "torch"),
    "profile": ("builder.profiling.cli", "clients"),
    "refresh": ("builder.refresh.cli", "torch"),
}
"""Commands with a parser of their own: the module, and the extra that installs what it needs."""


def main(argv: list[str]) -> int:
    """Run the command and return its exit status: 0, or 1 with the reason on stderr.

    Commands in OWN_OPTIONS may return other statuses.
    """
    if argv[:1] and argv[0] in OWN_OPTIONS:
        return _with_own_options(argv[0], argv[1:])
    arguments = _parser().parse_args(argv)
    # Only environment variables keep the model loaders offline and quiet.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TQDM_DISABLE", "" if sys.stderr.isatty() else "1")
    try:
        run = getattr(arguments, "run", _run)  # set by pair_commands and manifest
        return int(run(arguments))
    except BuildError as error:
        print(f"specdec build: {error}", file=sys.stderr)
        return 1


def _with_own_options(name: str, argv: list[str]) -> int:
    place, extra = OWN_OPTIONS[name]
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        print(
            f"specdec build {name}: the module {error.name!r} is missing; "
            f"`pip install 'specdec-triton[{extra}]'` brings it",
            file=sys.stderr,
        )
        return 1
    # One module serves both kinds of head.
    return int(module.main(name, argv) if place == "builder.heads.cli" else module.main(argv))


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "pair":
        pair = load_pair(arguments.name)
        build_pair(pair, arguments.model_repository, arguments.cache, force=arguments.force)
        return 0
    if arguments.command == "add-draft":
        found = add_draft(
            arguments.model_repository,
            arguments.name,
            arguments.checkpoint,
            translation=arguments.translation,
        )
        print(f"{arguments.name}: {found}")
        return 0
    if arguments.command == "add-head":
        kind = add_head(arguments.model_repository, arguments.name, arguments.checkpoint)
        print(f"{arguments.name}: {kind} on the target's states")
        return 0
    if arguments.command == "colocate":
        names = colocate(arguments.model_repository, arguments.output)
        print(f"{arguments.output}: specdec runs {', '.join(names)} in its own process")
        return 0
    models = known_models()
    if arguments.name is None:
        for name, model in models.items():
            print(f"{name}: {model.name}, {model.licence}, {', '.join(model.source.packages)}")
        return 0
    if arguments.name not in models:
        raise BuildError(f"no model {arguments.name!r}; known: {', '.join(models)}")
    output = arguments.output or CACHE / arguments.name
    import_model(models[arguments.name], output, arguments.cache, force=arguments.force)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec build", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    pair = commands.add_parser(
        "pair", help="download, check and convert a pair into the model repository"
    )
    pair.add_argument("name", nargs="?", default=DEFAULT_PAIR, help="default: %(default)s")
    add_pair_commands(commands)
    added = commands.add_parser("add-draft", help="one more draft engine in the model repository")
    added.add_argument("name", help="of the new model; requests name it as their drafter")
    added.add_argument("checkpoint", type=Path, help="Hugging Face directory of a Llama model")
    added.add_argument(
        "--translation",
        choices=TRANSLATIONS,
        help="for a draft with another vocabulary: by text, or by the tokens that both know "
        "(default: as the vocabularies suggest)",
    )
    head = commands.add_parser(
        "add-head", help="give the target a head that drafts on its states (EAGLE-3, Medusa)"
    )
    head.add_argument("name", help="requests name it as their drafter")
    head.add_argument("checkpoint", type=Path, help="its folder: config.json and weights")
    placed = commands.add_parser(
        "colocate", help="a model repository whose orchestrator runs the engines in its own process"
    )
    placed.add_argument("output", type=Path, help="the new model repository")
    for command in (pair, added, head, placed):
        command.add_argument(
            "--model-repository",
            type=Path,
            default=Path("model_repository"),
            metavar="PATH",
            help="default: %(default)s",
        )
    single = commands.add_parser("import", help="write a known model as a Hugging Face directory")
    single.add_argument("name", nargs="?", help="none: list what is known")
    single.add_argument(
        "--output", type=Path, metavar="PATH", help=f"default: {CACHE}/NAME, below this directory"
    )
    manifest = commands.add_parser("manifest", help="record anew what a rendered repository holds")
    rendering_cli.add_manifest_options(manifest)
    manifest.set_defaults(run=rendering_cli.run_manifest)
    commands.add_parser("distill", help="make a draft from a target (its own --help)")
    commands.add_parser("eagle3", help="make an EAGLE-3 head for a target (its own --help)")
    commands.add_parser("medusa", help="make Medusa heads for a target (its own --help)")
    commands.add_parser("profile", help="measure what speculation costs (its own --help)")
    commands.add_parser("refresh", help="train the served draft on and swap it (its own --help)")
    for command in (pair, single):
        command.add_argument(
            "--cache", type=Path, default=CACHE, metavar="PATH", help="for downloaded files"
        )
        command.add_argument("--force", action="store_true", help="build even what is up to date")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
