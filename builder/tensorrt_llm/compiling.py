"""Running the steps of a compilation: finished steps are skipped, outputs appear when complete."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shlex
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from specdec.builder.errors import BuildError
from specdec.builder.outputs import RECORD, is_current, replaced
from specdec.builder.tensorrt_llm.plan import CALL, OUTPUT, Step

LOGS = "logs"
SMALL_BYTES = 1 << 20
"""Size up to which input files are hashed; larger ones are compared by size and time of change,
because hashing 140 GB would take longer than some steps."""
TAIL_LINES = 15
"""Last lines of the log that the error of a failed step shows."""


def compile_steps(steps: Sequence[Step], work: Path) -> list[Path]:
    """Run the steps that are not done yet, in order; return the engines' directories.

    A step is done if its output was made by the same command from the same inputs. Each step has
    its own log in `work`/logs. Raises BuildError if a step fails, an input is missing, or another
    compilation works in `work`.
    """
    (work / LOGS).mkdir(parents=True, exist_ok=True)
    with _locked(work):
        for number, step in enumerate(steps, 1):
            _remove_leftovers(work / step.directory)
            output, title = work / step.directory, f"[{number}/{len(steps)}] {step.name}"
            made_from = _input_of(step)
            if is_current(output, made_from):
                print(f"{title}: done before, {output}")
                continue
            log = work / LOGS / f"{step.name.replace(' ', '-')}.log"
            print(f"{title}: {output}, log {log}", flush=True)
            start_s = time.monotonic()
            with replaced(output, made_from) as new:
                _run(step, new, log)
            print(f"{title}: {time.monotonic() - start_s:.0f} s")
    return [work / step.directory for step in steps if step.is_engine]


def describe_steps(steps: Sequence[Step], work: Path) -> str:
    """Return the commands and calls of the steps as a script for people to read."""
    lines = []
    for number, step in enumerate(steps, 1):
        output = work / step.directory
        lines += [f"# {number}/{len(steps)}: {step.name}"]
        if step.call is not None:
            lines += [f"#   {line}" for line in step.call.lines(str(output))]
        lines += [shlex.join(_command(step, output, work / LOGS / _call_name(step))), ""]
    return "\n".join(lines).rstrip()


def _command(step: Step, output: Path, call: Path) -> list[str]:
    return [each.replace(OUTPUT, str(output)).replace(CALL, str(call)) for each in step.command]


def _call_name(step: Step) -> str:
    return f"{step.name.replace(' ', '-')}.json"


def _run(step: Step, output: Path, log: Path) -> None:
    """Run the step's command. Its output goes to the log; a terminal shows the latest line.

    Raises BuildError if it fails or writes no config.json.
    """
    call = log.with_suffix(".json")
    if step.call is not None:
        call.write_text(step.call_text, "utf-8")
    command = _command(step, output, call)
    tail = deque[str](maxlen=TAIL_LINES)
    # Without a terminal (`disable=None`) nothing is shown.
    latest = tqdm(bar_format="  {desc}", leave=False, disable=None)
    with latest, log.open("w", encoding="utf-8") as written:
        written.write(f"$ {shlex.join(command)}\n")
        written.flush()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=output.parent,  # trtllm-build writes its timing cache to the current folder
        )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                written.write(line)
                tail.append(line.rstrip())
                latest.set_description_str(line.rstrip()[:100])
    if process.returncode != 0:
        listed = "\n".join(f"  {line}" for line in tail)
        raise BuildError(
            f"{step.name} ended with status {process.returncode}; the log is {log}:\n{listed}\n"
            "Finished steps are kept: fix the cause and run the command again"
        )
    if not (output / "config.json").is_file():
        raise BuildError(f"{step.name} wrote no config.json; the log is {log}")


def _input_of(step: Step) -> dict[str, str]:
    """Return the command, the call and the digests of all inputs, for `is_current`."""
    inputs = {str(each): _digest(each) for each in step.inputs}
    return {"command": shlex.join(step.command), "call": step.call_text} | inputs


def _digest(directory: Path) -> str:
    """Return a hash of an input directory; if a step made it, only its record is hashed.

    Raises BuildError if it is not a directory.
    """
    if not directory.is_dir():
        raise BuildError(
            f"{directory} is not a directory: give one with --checkpoint ENGINE=DIRECTORY"
        )
    if (directory / RECORD).is_file():
        return hashlib.sha256((directory / RECORD).read_bytes()).hexdigest()
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


def _remove_leftovers(output: Path) -> None:
    """Remove temporary folders of a killed run; the lock keeps other runs out."""
    for path in output.parent.glob(f"{output.name}.*"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(work: Path) -> Iterator[None]:
    """Hold the lock of the directory. Raises BuildError if another compilation has it."""
    with (work / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BuildError(f"another compilation is running in {work}") from error
        yield
