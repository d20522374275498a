"""The commands `specdec build render PAIR` and `specdec build manifest DIR`."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path

from builder.description.loading import pair_file
from builder.errors import BuildError
from builder.pair_options import add_pair_options, asked_pair
from builder.rendering.launch import LAUNCH_FILE, plan_launch
from builder.rendering.manifest import check_manifest, rewrite_manifest
from builder.rendering.repository import RenderOptions, notices, render


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `render` to the parser."""
    add_pair_options(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="the new model repository"
    )
    parser.add_argument(
        "--engines", type=Path, metavar="DIR", help="what `compile` wrote: OUTPUT/engines"
    )
    parser.add_argument(
        "--served-at",
        type=Path,
        metavar="DIR",
        help="where the repository will lie when it is served, in a container for instance "
        "(default: where it is written)",
    )
    parser.add_argument(
        "--colocate",
        action="store_true",
        help="torch engines run in the orchestrator's own process",
    )
    parser.add_argument(
        "--ranks",
        action="store_true",
        help="mpirun starts every rank: for machines where MPI may not spawn processes",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(".cache/models"),
        metavar="DIR",
        help="for downloaded weights (default: %(default)s)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written, write nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Render the repository, or list its files with --dry-run; return 0.

    Raises BuildError if the pair cannot be built or the repository cannot be written.
    """
    pair, file = asked_pair(arguments), pair_file(arguments.pair)
    output: Path = arguments.output
    options = RenderOptions(
        engines=arguments.engines,
        served_at=arguments.served_at or output.resolve(),
        cache=arguments.cache,
        colocated=arguments.colocate,
        starts_ranks=arguments.ranks,
    )
    if arguments.dry_run:
        with tempfile.TemporaryDirectory(prefix="specdec-render-") as scratch:
            place = Path(scratch) / "repository"
            render(pair, file, place, options)
            for path in sorted(each for each in place.rglob("*") if each.is_file()):
                print(f"{path.stat().st_size:>13,}  {output / path.relative_to(place)}")
    else:
        render(pair, file, output, options)
        print(f"{output}: the pair {pair.name}")
    for notice in notices(pair, options):
        print(f"notice: {notice}")
    print(f"start it: {output / LAUNCH_FILE}")
    launch = plan_launch(pair, starts_ranks=options.starts_ranks)
    for name, value in launch.environment:
        print(f"  {name}={value}")
    command = launch.command.replace('"$repository"', shlex.quote(str(output)))
    print("  " + command.replace(' "$@"', ""))
    return 0


def add_manifest_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `manifest` to the parser."""
    parser.add_argument("repository", type=Path, metavar="DIR", help="a rendered model repository")
    parser.add_argument(
        "--check", action="store_true", help="compare, record nothing; status 1 on a difference"
    )


def run_manifest(arguments: argparse.Namespace) -> int:
    """Record the files of a repository anew, or compare them with --check; return 0.

    Raises BuildError without a manifest, or if --check finds a difference.
    """
    if arguments.check:
        problems = check_manifest(arguments.repository)
        if problems:
            listed = "\n".join(f"- {each}" for each in problems)
            raise BuildError(f"{arguments.repository} does not match its manifest:\n{listed}")
        print(f"{arguments.repository}: as it was rendered")
        return 0
    for change in rewrite_manifest(arguments.repository):
        print(f"recorded: {change}")
    print(f"{arguments.repository}: manifest written")
    return 0
