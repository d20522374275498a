"""`python -m specdec.loadtest.gpu`: run the steps, pack the archive, collect the results."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from specdec.folders import CHECKOUT
from specdec.loadtest.gpu.folders import GpuFolders, has_vllm, home
from specdec.loadtest.gpu.identity import gpu_name, identify
from specdec.loadtest.gpu.running import RECORDS, Runner, RunOptions
from specdec.loadtest.gpu.step_list import STEPS, Step
from specdec.loadtest.gpu.step_records import StepRecords
from specdec.loadtest.gpu.unpacking import is_set_up, receive, set_up

BUILD = Path("build/gpu")
ARCHIVE = BUILD / "archive"
MODEL_REPOSITORY = Path("model_repository")
SHIPPED = Path("builder/pairs/smollm2_135m")
CHECKPOINTS = "checkpoints"


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status.

    The status is 0 if everything went well. It is 1 if a part of the archive or a step is missing,
    or a step failed.
    """
    arguments = _parser().parse_args(argv)
    command = {"run": _run, "rehearse": _rehearse, "pack": _pack, "collect": _collect}
    return command[arguments.command](arguments)


def _run(arguments: argparse.Namespace) -> int:
    """Run the steps that fit into the time on this machine's GPU."""
    start_s = time.monotonic()
    folders = GpuFolders(home())
    out = arguments.out or Path(os.environ.get("OUT") or BUILD / "out")
    try:
        gpu = gpu_name()
    except OSError as error:
        print(f"gpu: {error}; without one, `make gpu REHEARSE=1`", file=sys.stderr)
        return 1
    missing = receive(ARCHIVE, folders)
    identity = identify(CHECKOUT, folders.archive, gpu)
    if missing:
        print(f"missing: {', '.join(missing)}; the steps that serve wait for the whole archive")
    elif not is_set_up(folders):
        set_up(folders)
        print(f"unpacked in {time.monotonic() - start_s:.0f} s")
    known = StepRecords.read(
        CHECKOUT / "loadtest" / "results" / "gpu" / RECORDS, folders.records, out / RECORDS
    )
    seconds = 60 * arguments.minutes - (time.monotonic() - start_s)
    options = RunOptions(out.absolute(), seconds, is_rehearsal=False)
    steps = _steps(is_rehearsal=False)
    return 0 if Runner(options, folders, identity, known).run(steps) else 1


def _steps(*, is_rehearsal: bool) -> list[Step]:
    """Return the steps; those with vLLM only if there is one."""
    return [each for each in STEPS if not each.needs_vllm or has_vllm(is_rehearsal=is_rehearsal)]


def _rehearse(arguments: argparse.Namespace) -> int:
    """Pack, unpack and run everything in miniature on this machine's CPU.

    With `--archive`, that one is unpacked instead of a new one being packed. This rehearses in an
    environment that has only what the machine with the GPU has.
    """
    start_s = time.monotonic()
    kind = "quick" if arguments.quick else "bare" if arguments.archive else "rehearsal"
    folder = (BUILD / kind).absolute()
    folders = GpuFolders(folder / "home")
    known = _steps(is_rehearsal=True)
    steps = [step for step in known if step.is_quick or not arguments.quick]
    if not arguments.quick and not is_set_up(folders):
        archive = arguments.archive or folder / "archive"
        if not arguments.archive:
            from specdec.loadtest.gpu.packing import pack_all  # noqa: PLC0415  the GPU machine cannot pack

            pack_all(
                archive,
                interpreter=sys.executable,
                model_repository=MODEL_REPOSITORY,
                for_rehearsal=True,
            )
            print(f"packed in {time.monotonic() - start_s:.0f} s")
        missing = receive(archive, folders)
        if missing:
            print(f"gpu: {archive} lacks {', '.join(missing)}", file=sys.stderr)
            return 1
        set_up(folders)
        print(f"unpacked after {time.monotonic() - start_s:.0f} s", flush=True)
    out = folder / "out"
    identity = identify(CHECKOUT, folders.archive, "rehearsal")
    options = RunOptions(out, 3600.0, is_rehearsal=True)
    is_whole = Runner(options, folders, identity, StepRecords.read(out / RECORDS)).run(steps)
    print(f"rehearsed in {time.monotonic() - start_s:.0f} s")
    if is_whole:
        shutil.rmtree(folder)  # The next rehearsal packs anew.
    return 0 if is_whole else 1


def _pack(arguments: argparse.Namespace) -> int:
    """Pack the archive for a machine with a GPU."""
    from specdec.loadtest.gpu.packing import PackingError, pack_all  # noqa: PLC0415  as above

    start_s = time.monotonic()
    try:
        index = pack_all(
            ARCHIVE,
            interpreter=arguments.python,
            model_repository=MODEL_REPOSITORY,
            questions=arguments.questions,
            with_vllm=arguments.vllm,
        )
    except PackingError as error:
        print(f"gpu pack: {error}", file=sys.stderr)
        return 1
    for member in index.members:
        print(f"{member.name:<10} {member.num_bytes / 1e6:6.1f} MB")
    for name, num_bytes in index.parts:
        print(f"{ARCHIVE / name}: {num_bytes / 1e6:.1f} MB")
    print(f"packed at {index.commit} in {time.monotonic() - start_s:.0f} s")
    return 0


def _collect(arguments: argparse.Namespace) -> int:
    """Merge the records of a GPU run, and keep trained weights if they are better."""
    from specdec.loadtest.gpu.collecting import collect  # noqa: PLC0415  as above
    from specdec.loadtest.gpu.training.keeping import keep_better  # noqa: PLC0415
    from specdec.loadtest.kit.prompts import checkpoint_of  # noqa: PLC0415

    try:
        for record in collect(arguments.folder).records:
            print(f"{record.step}: {record.verdict.value} on {record.gpu}: {record.figure}")
        if (arguments.folder / CHECKPOINTS).is_dir():
            target = checkpoint_of(MODEL_REPOSITORY)
            for each in keep_better(arguments.folder / CHECKPOINTS, target, SHIPPED):
                print(each, flush=True)
    except (OSError, ValueError) as error:
        print(f"gpu collect: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec.loadtest.gpu", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run what fits on this machine's GPU")
    run.add_argument(
        "--minutes", type=float, default=8.0, help="for all steps together (default: %(default)s)"
    )
    run.add_argument(
        "--out", type=Path, help="folder of the results (default: $OUT or build/gpu/out)"
    )
    rehearse = commands.add_parser("rehearse", help="the same in miniature on a CPU")
    rehearse.add_argument("--quick", action="store_true", help="without packing and serving")
    rehearse.add_argument(
        "--archive", type=Path, help="folder of an archive, to unpack instead of packing"
    )
    pack = commands.add_parser("pack", help="pack the archive to send")
    pack.add_argument("--python", default="python3.12", help="a Python of the machine's version")
    pack.add_argument(
        "--questions", type=Path, nargs="*", default=[], help="prompts that must not be trained on"
    )
    pack.add_argument(
        "--vllm", action="store_true", help="pack vLLM too, for the step served_inside"
    )
    collect = commands.add_parser("collect", help="merge results")
    collect.add_argument("folder", type=Path, help="folder of the results to merge")
    return parser


if __name__ == "__main__":
    sys.exit(main())
