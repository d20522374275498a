"""A new version of a draft beside the old one: put there in one step, served, and taken back."""

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

from builder.colocate import linked
from builder.errors import BuildError
from builder.refresh.trial import Trial, TrialSettings, Verdict, watch
from builder.refresh.triton import Counters, Server
from specdec.serving.versions import CHECKPOINT, HEAD, served_version, versions

MARK = "refreshed.json"
"""In versions that a refresh has made: these alone it removes again."""
ON_TRIAL = "on_trial"
"""In a version whose trial has not ended: a refresh that died leaves it."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A trial that ended, and how long the servers took to load the new version."""

    trial: Trial
    version: int
    """What is served now."""
    load_s: float
    """Until the new version answered, on the first server."""
    num_requests: float
    """Answered by the first server from then until what stays was served."""


def add_version(
    model: Path, weights: Path, rebuild: str | None = None, folder: str = CHECKPOINT
) -> Path:
    """Make the next version of `model`; it appears as a whole or not at all.

    `weights` become its `folder`; the other folders are those of the version before. `rebuild` is
    run in the new version before it appears, for engines that are compiled: it finds the weights
    in $SPECDEC_CHECKPOINT and writes the engine. Raises BuildError.
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
                shutil.copytree(old / name, new / name, copy_function=linked)
        shutil.copytree(weights, new / folder)
        if rebuild is not None:
            _rebuild(rebuild, new, new / folder)
        made = {"from_version": int(old.name), "made_at": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        (new / MARK).write_text(json.dumps(made) + "\n", "utf-8")
        (new / ON_TRIAL).touch()
        place = model / str(int(old.name) + 1)
        new.rename(place)
    return place


def swap(
    model: Path,
    drafter: str,
    version: Path,
    servers: Sequence[Server],
    before: Counters,
    settings: TrialSettings,
) -> Swap:
    """Serve `version`, watch its `drafter`, and go back to the version before if it is worse.

    The first server tries it; the others load it when it is kept. Interrupted, it goes back.
    Raises BuildError, and nothing has changed then, if the first server refuses.
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
        with suppress(BuildError):  # What went wrong first is what is told.
            go_back(model, version, servers)
        raise
    if trial.verdict is not Verdict.KEEP:
        go_back(model, version, servers[:1])
    else:
        (version / ON_TRIAL).unlink()
        _prune(model)
    served = served_version(model)
    assert served is not None
    num_requests = first.counters(drafter).since(start).num_requests
    return Swap(trial, int(served.name), load_s, num_requests)


def go_back(model: Path, version: Path, servers: Sequence[Server]) -> None:
    """Serve the version before `version` again, which is removed first.

    So a server that starts at this moment does not find it either. Raises BuildError if a server
    cannot be asked: it serves the old version after its next start.
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
    """The version that a refresh has left before its trial was over."""
    version = served_version(model)
    return version if version is not None and (version / ON_TRIAL).exists() else None


@contextmanager
def _scratch(model: Path) -> Iterator[Path]:
    """A folder inside the model's, so that versions can be renamed; Triton passes it by."""
    place = model / "refresh.scratch"
    shutil.rmtree(place, ignore_errors=True)  # Of a run that was killed.
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _prune(model: Path) -> None:
    """Keep what is served and the version before it; of the others only what we have made goes."""
    for version in versions(model)[:-2]:
        if (version / MARK).exists():
            shutil.rmtree(version, ignore_errors=True)


def _rebuild(command: str, version: Path, weights: Path) -> None:
    print(f"refresh: rebuilding: {command}", flush=True)
    environment = dict(os.environ) | {"SPECDEC_CHECKPOINT": str(weights.resolve())}
    try:
        result = subprocess.run(shlex.split(command), cwd=version, env=environment, check=False)
    except OSError as error:
        raise BuildError(f"the engine cannot be rebuilt: {error}") from error
    if result.returncode != 0:
        raise BuildError(
            f"the engine was not rebuilt: {command!r} ended with status {result.returncode}; the "
            "draft that was served is served still"
        )


def summary(swapped: Swap) -> dict[str, object]:
    """For the report."""
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
