"""Carry out the steps of a compilation: each whole or not at all, and none twice."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from builder.errors import BuildError
from builder.outputs import MANIFEST, is_current, replaced
from builder.tensorrt_llm.plan import OUTPUT, Step

LOGS = "logs"
CALL = "{call}"
SMALL_BYTES = 1 << 20
"""Larger files of an input count by size and time: hashing 140 GB would take longer than some
steps do."""
TAIL_LINES = 15


def compile_steps(steps: Sequence[Step], work: Path) -> list[Path]:
    """Run what is not done yet; return the engines' directories. Raises BuildError.

    A step is done when its output was made by the same command from the same inputs. Each has a log
    of its own in `work`/logs.
    """
    (work / LOGS).mkdir(parents=True, exist_ok=True)
    with _alone(work):
        for number, step in enumerate(steps, 1):
            _remove_leftovers(work / step.directory)
            place, title = work / step.directory, f"[{number}/{len(steps)}] {step.name}"
            made_from = _stamp(step)
            if is_current(place, made_from):
                print(f"{title}: done before, {place}")
                continue
            log = work / LOGS / f"{step.name.replace(' ', '-')}.log"
            print(f"{title}: {place}, log {log}", flush=True)
            start_s = time.monotonic()
            with replaced(place, made_from) as new:
                _run(step, new, log)
            print(f"{title}: {time.monotonic() - start_s:.0f} s")
    return [work / step.directory for step in steps if step.name.startswith("build ")]


def describe_steps(steps: Sequence[Step], work: Path) -> str:
    """The commands and calls, as a script for people to read."""
    lines = []
    for number, step in enumerate(steps, 1):
        place = str(work / step.directory)
        lines += [f"# {number}/{len(steps)}: {step.name}"]
        if step.call is not None:
            lines += [f"#   {line}" for line in step.call.lines(place)]
        lines += [shlex.join(_command(step, Path(place), work / LOGS / _call_name(step))), ""]
    return "\n".join(lines).rstrip()


def _command(step: Step, output: Path, call: Path) -> list[str]:
    return [each.replace(OUTPUT, str(output)).replace(CALL, str(call)) for each in step.command]


def _call_name(step: Step) -> str:
    return f"{step.name.replace(' ', '-')}.json"


def _run(step: Step, output: Path, log: Path) -> None:
    """Run the step's command; its words go to the log, the last of them to a terminal."""
    call = log.with_suffix(".json")
    if step.call is not None:
        call.write_text(step.call_text, "utf-8")
    command = _command(step, output, call)
    is_terminal, tail = sys.stderr.isatty(), deque[str](maxlen=TAIL_LINES)
    with log.open("w", encoding="utf-8") as written:
        written.write(f"$ {shlex.join(command)}\n")
        written.flush()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=output.parent,  # trtllm-build leaves its timing cache where it runs
        )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                written.write(line)
                tail.append(line.rstrip())
                if is_terminal:
                    print(f"\r\x1b[K  {line.rstrip()[:100]}", end="", file=sys.stderr, flush=True)
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if process.returncode != 0:
        listed = "\n".join(f"  {line}" for line in tail)
        raise BuildError(
            f"{step.name} ended with status {process.returncode}; the log is {log}:\n{listed}\n"
            "What was done before is kept: run the command again when it is mended"
        )
    if not (output / "config.json").is_file():
        raise BuildError(f"{step.name} wrote no config.json; the log is {log}")


def _stamp(step: Step) -> dict[str, str]:
    inputs = {str(each): _digest(each) for each in step.inputs}
    return {"command": shlex.join(step.command), "call": step.call_text} | inputs


def _digest(directory: Path) -> str:
    """Of an input directory; of one that a step made, the stamp. Raises BuildError."""
    if not directory.is_dir():
        raise BuildError(f"{directory} is no directory: name it by --checkpoint ENGINE=DIRECTORY")
    if (directory / MANIFEST).is_file():
        return hashlib.sha256((directory / MANIFEST).read_bytes()).hexdigest()
    files = []
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        found = file.stat()
        content = (
            hashlib.sha256(file.read_bytes()).hexdigest()
            if found.st_size <= SMALL_BYTES
            else f"{found.st_size} {found.st_mtime_ns}"
        )
        files.append([str(file.relative_to(directory)), content])
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def _remove_leftovers(place: Path) -> None:
    """Of a run that was killed; nobody else works here."""
    for path in place.parent.glob(f"{place.name}.*"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """One compilation at a time in a directory. Raises BuildError."""
    with (work / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BuildError(f"another compilation is at work in {work}") from error
        yield
