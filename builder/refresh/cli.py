"""The command line of `specdec build refresh`, which allows one run per work folder at a time."""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from builder.errors import BuildError
from builder.refresh.steps import Refresh
from builder.refresh.trial import TrialSettings

EXIT_FAILED = 1


def main(argv: list[str]) -> int:
    """Run a refresh and return its exit status.

    0: refreshed, trained without a server to swap on, or no better; 1: an error; 3: acceptance fell
    on the held-out prompts; 4: the new draft was rolled back.
    """
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)  # A stopped job rolls back too.
    try:
        with _alone(options.work):
            return Refresh(options).run()
    except BuildError as error:
        print(f"specdec build refresh: {error}", file=sys.stderr)
        return EXIT_FAILED


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Hold the lock of the work folder. Raises BuildError if another run has it."""
    work.mkdir(parents=True, exist_ok=True)
    work.chmod(0o700)  # Prompts of users lie there meanwhile.
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BuildError(f"another refresh works in {work}") from error
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec build refresh",
        description="Train the served draft on, against the target as it is now; report acceptance "
        "before and after on held-out prompts; swap it in and watch it; go back by itself.",
        epilog="Exit status: 0 refreshed or no better, 3 acceptance fell on the held-out prompts, "
        "4 rolled back, 1 it could not be done.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prompts", type=Path, nargs="+", metavar="FILE", help='{"prompt": text} a line'
    )
    source.add_argument(
        "--prompt-log", type=Path, metavar="DIR", help="the server's prompt_log_dir"
    )
    parser.add_argument(
        "--tenants", nargs="+", default=[], metavar="NAME", help="of the log, these alone"
    )
    parser.add_argument("--work", type=Path, required=True, help="kept and resumed")
    parser.add_argument(
        "--model-repository", type=Path, default=Path("model_repository"), metavar="PATH"
    )
    parser.add_argument("--draft", default="draft", metavar="MODEL", help="default: %(default)s")
    parser.add_argument(
        "--head", metavar="NAME", help="the target's head of this name instead of a draft model"
    )
    parser.add_argument("--target", default="target", metavar="MODEL", help="default: %(default)s")
    parser.add_argument(
        "--max-prompts", type=int, default=2000, metavar="N", help="the newest ones"
    )
    parser.add_argument("--max-prompt", type=int, default=512, metavar="TOKENS", help="longer: out")
    parser.add_argument("--max-new", type=int, default=192, metavar="TOKENS", help="of an answer")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="limit of answering and of training, each"
    )
    parser.add_argument("--num-workers", type=int, default=2, help="processes that answer on a CPU")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument(
        "--server",
        nargs="+",
        default=[],
        metavar="URL",
        help="swap there; of several, the first tries the draft; none: train and report only",
    )
    parser.add_argument(
        "--metrics", default="", metavar="URL", help="of the first (default: its port 8002)"
    )
    parser.add_argument(
        "--admin-key-file",
        type=Path,
        metavar="FILE",
        help="the key file that the servers were started with (`specdec serve --admin-key-file`)",
    )
    trial = TrialSettings()
    parser.add_argument("--trial-rounds", type=int, default=trial.num_rounds, metavar="N")
    parser.add_argument("--trial-minutes", type=float, default=trial.max_minutes, metavar="N")
    parser.add_argument(
        "--max-drop",
        type=float,
        default=trial.max_drop,
        metavar="SHARE",
        help="of live acceptance that may be lost (default: %(default)s)",
    )
    parser.add_argument(
        "--rebuild",
        metavar="COMMAND",
        help="run in the new version's folder, to compile an engine from $SPECDEC_CHECKPOINT",
    )
    return parser
