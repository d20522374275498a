"""Model versions of a refreshed draft: add one, serve it on trial, keep it or roll back."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from specdec.builder.errors import BuildError
from specdec.builder.outputs import link_or_copy
from specdec.builder.refresh.trial import Trial, TrialSettings, Verdict, watch
from specdec.builder.refresh.triton import Counters, Server
from specdec.deployment.versions import CHECKPOINT, HEAD, served_version, versions

MARK = "refreshed.json"
"""File in versions that a refresh made; a refresh removes only those."""
ON_TRIAL = "on_trial"
"""File in a version whose trial has not ended; a killed refresh leaves it behind."""


@dataclass(frozen=True, slots=True)
class Swap:
    """The result of a swap: the trial, and the version that is served after it."""

    trial: Trial
    version: int
    """Number of the version that is served now."""
    load_s: float
    """Seconds that the first server took to load the new version."""
    num_requests: float
    """Requests that the first server answered from that load to the end of the swap, or to the last
    time that its metrics page could be read."""


def add_version(
    model: Path, weights: Path, rebuild: str | None = None, folder: str = CHECKPOINT
) -> Path:
    """Add the next version to the folder `model` and return its path.

    `weights` are copied to its `folder` (CHECKPOINT or HEAD). model.py and the other of these two
    folders come from the version before. For compiled engines, `rebuild` is a command that runs in
    the new version, reads the weights in $SPECDEC_CHECKPOINT and writes the engine. The version is
    complete before it appears. Raises BuildError if the model has no version or `rebuild` fails.
    """
    old = served_version(model)
    if old is None:
        raise BuildError(f"{model} has no version; is it a model of a Triton repository?")
    with _scratch(model) as scratch:
        new = scratch / "new"
        new.mkdir()
        if (old / "model.py").exists():
            shutil.copyfile(old / "model.py", new / "model.py")
        for name in {CHECKPOINT, HEAD} - {folder}:
            if (old / name).is_dir():
                shutil.copytree(old / name, new / name, copy_function=link_or_copy)
        shutil.copytree(weights, new / folder)
        if rebuild is not None:
            _rebuild(rebuild, new, new / folder)
        made = {"from_version": int(old.name), "made_at": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        (new / MARK).write_text(json.dumps(made) + "\n", "utf-8")
        (new / ON_TRIAL).touch()
        version = model / str(int(old.name) + 1)
        new.rename(version)
    return version


def swap(
    model: Path,
    drafter: str,
    version: Path,
    servers: Sequence[Server],
    before: Counters,
    settings: TrialSettings,
) -> Swap:
    """Serve `version`, watch its `drafter`, and go back to the version before if it is worse.

    The first server runs the trial; the others load the version if it is kept. `before` are the
    counters to compare with. After an interruption or an error all servers go back. Raises
    BuildError if a server refuses to load it, or the metrics page cannot be read when the trial
    begins.
    """
    first, *others = servers
    began_s = time.monotonic()
    try:
        first.load(model.name)
        load_s = time.monotonic() - began_s
        start = first.counters(drafter)
        trial = watch(lambda: first.counters(drafter), before, start, settings)
        if trial.verdict is Verdict.KEEP:
            for server in others:
                server.load(model.name)
    except BaseException:
        with suppress(BuildError):  # The first error is the one to report.
            roll_back(model, version, servers)
        raise
    if trial.verdict is not Verdict.KEEP:
        roll_back(model, version, servers[:1])
    else:
        (version / ON_TRIAL).unlink()
        _prune(model)
    served = served_version(model)
    assert served is not None
    try:
        num_requests = first.counters(drafter).since(start).num_requests
    except BuildError:  # The trial's result counts, even if the page is gone.
        num_requests = trial.during.num_requests
    return Swap(trial, int(served.name), load_s, num_requests)


def roll_back(model: Path, version: Path, servers: Sequence[Server]) -> None:
    """Remove `version` and let the servers load the version before it.

    It is removed first, so that a server starting at this moment does not find it. Raises
    BuildError if a server cannot load; after its next start that one serves the old version too.
    """
    errors = []
    with _scratch(model) as away:
        version.rename(away / version.name)
        for server in servers:
            try:
                server.load(model.name)
            except BuildError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def left_on_trial(model: Path) -> Path | None:
    """Return the served version if its trial never ended, as after a killed refresh, else None."""
    version = served_version(model)
    return version if version is not None and (version / ON_TRIAL).exists() else None


@contextmanager
def _scratch(model: Path) -> Iterator[Path]:
    """Yield a new folder inside the model's, so that versions can be renamed into and out of it.

    Triton ignores it, because its name is not a number. It is removed at the end.
    """
    scratch = model / "refresh.scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # A killed run may have left it.
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _prune(model: Path) -> None:
    """Remove all versions but the newest two, if a refresh made them."""
    for version in versions(model)[:-2]:
        if (version / MARK).exists():
            shutil.rmtree(version, ignore_errors=True)


def _rebuild(command: str, version: Path, weights: Path) -> None:
    """Run the command in the folder `version`. Raises BuildError if it fails."""
    print(f"refresh: compiling the engine: {command}", flush=True)
    environment = dict(os.environ) | {"SPECDEC_CHECKPOINT": str(weights.resolve())}
    try:
        result = subprocess.run(shlex.split(command), cwd=version, env=environment, check=False)
    except OSError as error:
        raise BuildError(f"the engine cannot be compiled: {error}") from error
    if result.returncode != 0:
        raise BuildError(
            f"the engine was not compiled: {command!r} ended with status {result.returncode}; the "
            "old draft is still served"
        )


def summary(swapped: Swap) -> dict[str, object]:
    """Return the swap's result for report.json."""
    trial = swapped.trial
    return {
        "verdict": trial.verdict.name.lower(),
        "version": swapped.version,
        "load_s": round(swapped.load_s, 2),
        "num_requests": swapped.num_requests,
        "trial_s": round(trial.seconds, 2),
        "before": asdict(trial.before),
        "during": asdict(trial.during),
    }
