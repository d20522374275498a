"""The controller's state file: measurements to survive a restart, or to serve as a profile.

A new file is written under another name and renamed, so that a crash leaves the old one. The file
carries the signature of the engines and drafters that were measured, and is refused for others.
From another machine's file only acceptance is taken, no times. For a drafter whose weights have
changed since, for example by training, only times are taken.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.steering.acceptance_estimates import AcceptanceEstimates
from specdec.steering.controller import Controller
from specdec.steering.costs import CostEstimates

FORMAT = "means 2"
"""Name of the file's format; a change of the format needs another name."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements in a state file that hold for a deployment."""

    acceptance: AcceptanceEstimates
    """Without the drafters in `replaced`."""
    costs: CostEstimates | None
    """None if another machine was measured."""
    saved_s: float
    """Time of writing in seconds since the epoch; 0 if it is not finite."""
    machine: str
    """The machine that was measured."""
    replaced: frozenset[str]
    """Drafters whose weights have changed since the file was written."""


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
        `weights` returns an identifier of the weights now served, by drafter; it may raise OSError.
        """
        self.path, self.machine = path, machine
        self._signature = signature
        self._weights = weights

    @classmethod
    def as_written(cls, path: Path) -> StateFile:
        """Return the file, for the deployment that wrote it. Raises StateFileMismatchError."""
        content = _read(path)
        if content is None:
            raise StateFileMismatchError(f"there is no {path}")
        try:
            return cls(path, str(content["signature"]), str(content["machine"]))
        except (KeyError, TypeError) as error:
            raise StateFileMismatchError(f"{path} is no state file") from error

    def save(self, controller: Controller) -> None:
        """Write what the controller has learned. Raises OSError."""
        content = {
            "format": FORMAT,
            "signature": self._signature,
            "machine": self.machine,
            "weights": dict(self._weights()),
            "saved_s": time.time(),
            **controller.state(),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        new.write_text(json.dumps(content), "utf-8")
        new.replace(self.path)

    def read(self, as_of_s: float | None = None) -> Measurements | None:
        """Return the file's measurements; None without a file. Raises StateFileMismatchError.

        `as_of_s` is the time, in seconds since the epoch, from which the acceptance estimates
        decay; by default, the time of their newest round.
        """
        content = _read(self.path)
        if content is None:
            return None
        try:
            if (content["format"], content["signature"]) != (FORMAT, self._signature):
                raise StateFileMismatchError(
                    f"{self.path} was written for other engines or drafters, or by another "
                    "release; measuring starts anew"
                )
            acceptance = AcceptanceEstimates.of_state(content["acceptance"], as_of_s)
            # Times do not fade while the server is off: the machine is the same.
            costs = CostEstimates.of_state(content["costs"], time.time())
            saved_s, machine = float(content["saved_s"]), str(content["machine"])
            replaced = self._replaced(content["weights"])
        except OSError as error:
            raise StateFileMismatchError(
                f"{self.path} is not used, because the weights served now are unknown: {error}"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateFileMismatchError(
                f"{self.path} is damaged ({error}); measuring starts anew"
            ) from error
        for drafter in replaced:
            acceptance.forget(drafter)
        return Measurements(
            acceptance=acceptance,
            costs=costs if machine == self.machine else None,
            saved_s=saved_s if math.isfinite(saved_s) else 0.0,
            machine=machine,
            replaced=replaced,
        )

    def _replaced(self, weights: Mapping[str, str]) -> frozenset[str]:
        served = self._weights()
        return frozenset(
            drafter for drafter, each in weights.items() if served.get(drafter, each) != each
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
