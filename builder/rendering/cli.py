"""`specdec build render PAIR`: write a whole model repository, with a script that starts it."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from specdec.builder.checking.options import add_pair_options, checked_pair
from specdec.builder.description import TORCH, PairDescription
from specdec.builder.description.loading import pair_file
from specdec.builder.importing.packages import CACHE
from specdec.builder.rendering.launch import LAUNCH_FILE, plan_launch
from specdec.builder.rendering.repository import RenderOptions, check_options, notices, render
from specdec.builder.rendering.torch_models import planned_paths


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `render` to the parser."""
    add_pair_options(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="the new model repository"
    )
    parser.add_argument(
        "--engines", type=Path, metavar="DIR", help="what `compile` wrote: its OUTPUT/engines"
    )
    parser.add_argument(
        "--served-at",
        type=Path,
        metavar="DIR",
        help="path of the repository when it is served, for instance in a container "
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
        default=CACHE,
        metavar="DIR",
        help="folder for downloaded weights (default: %(default)s)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written, write nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Render the repository, or list its files with --dry-run; return 0.

    Raises BuildError if the pair cannot be built or the repository cannot be written.
    """
    pair, file = checked_pair(arguments), pair_file(arguments.pair)
    output: Path = arguments.output
    options = RenderOptions(
        engines=arguments.engines,
        served_at=arguments.served_at or output.resolve(),
        cache=arguments.cache,
        colocated=arguments.colocate,
        starts_ranks=arguments.ranks,
    )
    if arguments.dry_run:
        for line in _planned(pair, file, output, options):
            print(line)
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


def _planned(
    pair: PairDescription, file: Path, output: Path, options: RenderOptions
) -> Iterator[str]:
    """Yield a line for each file that would be written.

    Without weights a repository is rendered in moments, so it is, to show the sizes. With those of
    torch engines it takes minutes, so then only paths are shown.
    """
    if pair.engine == TORCH or pair.has_drafters_inside:
        check_options(pair, output, options)
        yield from (str(output / path) for path in planned_paths(pair, options.colocated))
        return
    with tempfile.TemporaryDirectory(prefix="specdec-render-") as scratch:
        repository = Path(scratch) / "repository"
        render(pair, file, repository, options)
        for path in sorted(each for each in repository.rglob("*") if each.is_file()):
            yield f"{path.stat().st_size:>13,}  {output / path.relative_to(repository)}"
