"""The controller's state file: measurements to survive a restart, or to serve as a profile.

A new file is written under another name and renamed, so that a crash leaves the old one. The file
carries the signature of the engines and drafters that were measured, and is refused for others.
From another machine's file only acceptance is taken, no times. For a drafter with other weights
than then, for example after training, only times are taken.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from specdec.steering.acceptance_estimates import Tally
from specdec.steering.baselines import Baseline
from specdec.steering.controller import Controller
from specdec.steering.costs import NUM_PASS_FEATURES
from specdec.steering.draft_costs import NUM_FEATURES, Bend
from specdec.steering.fits import Fit, Recent, Vector

FORMAT = 9


class Recalled(Enum):
    """The measurements taken from a file."""

    NOTHING = "no file"
    ACCEPTANCE = "acceptance"
    ALL = "acceptance and times"


class StateFileMismatchError(Exception):
    """A state file that was written for another deployment or cannot be read."""


class StateFile:
    """The state file of one deployment."""

    def __init__(
        self,
        path: Path,
        signature: str,
        machine: str,
        weights: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Name the file, and the deployment that it must come from.

        `signature` identifies the engines and drafters, `machine` the machine they run on.
        `weights` returns an identifier of the weights now served, by drafter.
        """
        self.path, self.machine = path, machine
        self._signature = signature
        self._weights = weights

    @classmethod
    def found(cls, path: Path) -> StateFile:
        """Return the file, for the deployment that wrote it. Raises StateFileMismatchError."""
        content = _read(path)
        if content is None:
            raise StateFileMismatchError(f"there is no {path}")
        try:
            return cls(path, str(content["signature"]), str(content["machine"]))
        except (KeyError, TypeError) as error:
            raise StateFileMismatchError(f"{path} keeps no measurements") from error

    def save(self, controller: Controller) -> None:
        """Write what the controller has learned. Raises OSError."""
        weights = dict(self._weights())  # Reads files, so it must not hold the lock.
        with controller.lock:
            drafting = controller.costs.drafting
            content = {
                "format": FORMAT,
                "signature": self._signature,
                "machine": self.machine,
                "weights": weights,
                "saved_s": time.time(),
                "tallies": [
                    [list(key), asdict(tally)] for key, tally in controller.book.tallies.items()
                ],
                "passes": [[list(key), _fit(fit)] for key, fit in controller.costs.passes.items()],
                "drafts": [[list(key), _fit(fit)] for key, fit in drafting.lines.items()],
                "bends": [
                    [list(key), bend.means.tolist(), bend.num_samples]
                    for key, bend in drafting.bends.items()
                ],
                "baselines": [
                    [
                        *(key, each.steps.mean_s, each.steps.num_samples),
                        *(each.mean_context, each.mean_inflight),
                    ]
                    for key, each in controller.costs.baselines.items()
                    if each.steps.num_samples
                ],
                "prompts": _fit(controller.costs.prompts),
                "first_drafts": [
                    [key, _fit(fit)] for key, fit in controller.costs.first_drafts.items()
                ],
            }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        new.write_text(json.dumps(content), "utf-8")
        new.replace(self.path)

    @property
    def saved_s(self) -> float:
        """Time of writing in seconds since the epoch; 0 if the file cannot be read."""
        try:
            return _finite(_read(self.path)["saved_s"])
        except (StateFileMismatchError, ValueError, KeyError, TypeError):
            return 0.0

    @property
    def replaced(self) -> frozenset[str]:
        """Drafters whose weights have changed since the file. Raises StateFileMismatchError."""
        return self._replaced(_read(self.path))

    def load(self, controller: Controller, as_of_s: float | None = None) -> Recalled:
        """Give the file's measurements to the controller, and return which were taken.

        Raises StateFileMismatchError, with nothing taken. The file's times replace those in memory.
        Of two acceptance estimates the one from more rounds is kept; those of drafters in
        `replaced` are not taken. `as_of_s` is the time, in seconds since the epoch, from which the
        acceptance estimates decay; by default, the time of their newest round.
        """
        content = _read(self.path)
        if content is None:
            return Recalled.NOTHING
        try:
            found = content["format"], content["signature"]
            if found != (FORMAT, self._signature):
                raise StateFileMismatchError(
                    f"{self.path} is of other engines or drafters, or of another release; "
                    "measuring starts anew"
                )
            has_times = content["machine"] == self.machine
            replaced = self._replaced(content)
            tallies = {
                (task, drafter, band): _tally(value)
                for (task, drafter, band), value in content["tallies"]
                if drafter not in replaced
            }
            passes = {
                (int(bucket), bool(is_streamed)): _read_fit(value, NUM_PASS_FEATURES)
                for (bucket, is_streamed), value in content["passes"]
            }
            drafting = controller.costs.drafting
            drafts = {
                (str(name), int(bucket)): _read_fit(value, NUM_FEATURES, drafting.num_pass_features)
                for (name, bucket), value in content["drafts"]
            }
            bends = {
                (str(name), int(bucket), int(length)): Bend(
                    _numbers(means, drafting.no_bend().means.shape), int(count)
                )
                for (name, bucket, length), means, count in content["bends"]
            }
            baselines = {
                int(key): Baseline(
                    Recent(_finite(mean_s), int(count)),
                    _finite(mean_context),
                    _finite(mean_inflight),
                    num_fresh=int(count),
                )
                for key, mean_s, count, mean_context, mean_inflight in content["baselines"]
            }
            prompts = _read_fit(content["prompts"], 4)
            first_drafts = {str(key): _read_fit(value, 2) for key, value in content["first_drafts"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateFileMismatchError(
                f"{self.path} is damaged ({error}); measuring starts anew"
            ) from error
        if as_of_s is not None:
            tallies = {key: replace(each, last_s=as_of_s) for key, each in tallies.items()}
        with controller.lock:
            known, now_s = controller.book.tallies, time.time()
            for key, tally in tallies.items():
                if key not in known or _num_rounds(tally, now_s) >= _num_rounds(known[key], now_s):
                    known[key] = tally
            if not has_times:
                return Recalled.ACCEPTANCE
            controller.costs.passes.update(passes)
            drafting.lines.update(drafts)
            if prompts.num_samples:
                controller.costs.prompts = prompts
            controller.costs.first_drafts.update(first_drafts)
            drafting.bends.update(bends)
            controller.costs.baselines.update(baselines)
            controller.costs.solve_anew()
        return Recalled.ALL

    def _replaced(self, content: Any) -> frozenset[str]:
        served = self._weights()
        return frozenset(
            drafter
            for drafter, weights in content["weights"].items()
            if served.get(drafter, weights) != weights
        )


def _read(path: Path) -> Any:
    """Return the content, or None if there is no file. Raises StateFileMismatchError."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateFileMismatchError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise StateFileMismatchError(
            f"{path} is damaged ({error}); measuring starts anew"
        ) from error


def _num_rounds(tally: Tally, now_s: float) -> float:
    """Return the decayed number of rounds."""
    return tally.num_asked * tally.age(now_s)


def _fit(fit: Fit) -> dict[str, Any]:
    return {
        "products": fit.products.tolist(),
        "moments": fit.moments.tolist(),
        "crossed": fit.crossed.tolist(),
        "num_samples": fit.num_samples,
    }


def _read_fit(value: dict[str, Any], size: int, num_offsets: int = 0) -> Fit:
    fit = Fit(size, num_offsets)
    fit.products = _numbers(value["products"], fit.products.shape)
    fit.moments = _numbers(value["moments"], fit.moments.shape)
    fit.crossed = _numbers(value["crossed"], fit.crossed.shape)
    fit.num_samples = int(value["num_samples"])
    return fit


def _numbers(value: Any, shape: tuple[int, ...]) -> Vector:
    numbers: Vector = np.array(value, dtype=np.float64).reshape(shape)
    if not np.isfinite(numbers).all():
        raise ValueError("a fit that is not finite")
    return numbers


def _finite(value: Any) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{number} among the times")
    return number


def _tally(value: dict[str, Any]) -> Tally:
    tally = Tally(**value)
    empty = Tally()
    for field in fields(Tally):
        mine, usual = getattr(tally, field.name), getattr(empty, field.name)
        numbers = mine if isinstance(usual, list) else [mine]
        if len(numbers) != (len(usual) if isinstance(usual, list) else 1) or not all(
            isinstance(each, (int, float)) and np.isfinite(each) for each in numbers
        ):
            raise ValueError(f"a tally with {field.name} = {mine!r}")
    return tally
