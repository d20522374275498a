"""The command line of `specdec build refresh`; only one run may use a work folder at a time."""

from __future__ import annotations

import argparse
import fcntl
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from specdec.builder.errors import BuildError
from specdec.builder.refresh.steps import Refresh
from specdec.builder.refresh.trial import TrialSettings
from specdec.builder.repository.options import add_repository_option


def run(arguments: argparse.Namespace) -> int:
    """Run a refresh and return its exit status. Raises BuildError if it cannot be done.

    0: refreshed, trained without a server to swap on, or no better; 3: acceptance fell on the
    held-out prompts; 4: the new draft was rolled back.
    """
    signal.signal(signal.SIGTERM, _interrupt)  # A stopped job rolls back too.
    with _locked(arguments.work):
        return Refresh(arguments).run()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _locked(work: Path) -> Iterator[None]:
    """Hold the lock of the work folder. Raises BuildError if another run has it."""
    work.mkdir(parents=True, exist_ok=True)
    work.chmod(0o700)  # It holds prompts of users.
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BuildError(f"another refresh is running in {work}") from error
        yield


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `refresh` to the parser."""
    parser.description = (
        "Train the served draft further, for the target as it is now, and report acceptance before "
        "and after on held-out prompts. With --server, load the new draft, watch it, and go back "
        "to the old one if it is worse."
    )
    parser.epilog = (
        "Exit status: 0 refreshed or no better, 3 acceptance fell on the held-out prompts, "
        "4 rolled back, 1 it could not be done."
    )
    _add_prompts(parser)
    _add_drafts(parser)
    _add_training(parser)
    _add_servers(parser)


def _add_prompts(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prompts",
        type=Path,
        nargs="+",
        metavar="FILE",
        help='files with {"prompt": text} on each line',
    )
    source.add_argument(
        "--prompt-log", type=Path, metavar="DIR", help="the server's prompt_log_dir"
    )
    parser.add_argument(
        "--tenants",
        nargs="+",
        default=[],
        metavar="NAME",
        help="use only the log's prompts of these tenants",
    )
    parser.add_argument(
        "--max-prompts",
        type=int,
        default=2000,
        metavar="N",
        help="number of prompts to use: the newest (default: %(default)s)",
    )
    parser.add_argument(
        "--max-prompt",
        type=int,
        default=512,
        metavar="TOKENS",
        help="leave longer prompts out (default: %(default)s)",
    )


def _add_drafts(parser: argparse.ArgumentParser) -> None:
    add_repository_option(parser)
    parser.add_argument("--draft", default="draft", metavar="MODEL", help="default: %(default)s")
    parser.add_argument(
        "--head", metavar="NAME", help="the target's head of this name instead of a draft model"
    )
    parser.add_argument("--target", default="target", metavar="MODEL", help="default: %(default)s")


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the run, which a later run resumes"
    )
    parser.add_argument(
        "--max-new",
        type=int,
        default=192,
        metavar="TOKENS",
        help="length of an answer (default: %(default)s)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=30.0,
        help="time limit of answering and of training, each (default: %(default)s)",
    )
    parser.add_argument(
        "--num-workers",
        type=int,
        default=2,
        help="processes that answer on a CPU (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=20, help="default: %(default)s")


def _add_servers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        nargs="+",
        default=[],
        metavar="URL",
        help="servers on which to replace the draft, of which the first tries it; without this "
        "option, only train and report",
    )
    parser.add_argument(
        "--metrics",
        default="",
        metavar="URL",
        help="metrics page of the first server (default: its port 8002)",
    )
    parser.add_argument(
        "--admin-key-file",
        type=Path,
        metavar="FILE",
        help="the key file that the servers were started with (`specdec serve --admin-key-file`)",
    )
    parser.add_argument(
        "--rebuild",
        metavar="COMMAND",
        help="command that compiles the engine from $SPECDEC_CHECKPOINT, run in the new version's "
        "folder",
    )
    _add_trial(parser, TrialSettings())


def _add_trial(parser: argparse.ArgumentParser, trial: TrialSettings) -> None:
    parser.add_argument(
        "--trial-rounds",
        type=int,
        default=trial.num_rounds,
        metavar="N",
        help="rounds of the trial (default: %(default)s)",
    )
    parser.add_argument(
        "--trial-minutes",
        type=float,
        default=trial.max_minutes,
        metavar="N",
        help="time limit of the trial (default: %(default)s)",
    )
    parser.add_argument(
        "--max-drop",
        type=float,
        default=trial.max_drop,
        metavar="SHARE",
        help="share of the acceptance rate that may be lost (default: %(default)s)",
    )
