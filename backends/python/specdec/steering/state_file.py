"""The controller's state file: measurements to survive a restart, or to serve as a profile.

A new file is written under another name and renamed, so that a crash leaves the old one. The file
carries the signature of the engines and drafters that were measured, and is refused for others.
From another machine's file only acceptance is taken, no times. For a drafter with other weights
than then, for example after training, only times are taken.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from specdec.steering.acceptance_estimates import AcceptanceEstimates
from specdec.steering.controller import Controller
from specdec.steering.costs import CostEstimates

FORMAT = "means 2"
"""Name of the file's format; a change of the format needs another name."""


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

    @property
    def saved_s(self) -> float:
        """Time of writing in seconds since the epoch; 0 if the file cannot be read."""
        try:
            found = float(_read(self.path)["saved_s"])
        except (StateFileMismatchError, ValueError, KeyError, TypeError):
            return 0.0
        return found if math.isfinite(found) else 0.0

    @property
    def replaced(self) -> frozenset[str]:
        """Drafters whose weights have changed since the file; none without a file.

        Raises StateFileMismatchError.
        """
        content = _read(self.path)
        return frozenset() if content is None else self._replaced(content)

    def load(self, controller: Controller, as_of_s: float | None = None) -> Recalled:
        """Give the file's measurements to the controller, and return which were taken.

        Raises StateFileMismatchError, with nothing taken. The file's times replace those that the
        controller has. Of two acceptance estimates the one from more rounds is kept; those of
        drafters in `replaced` are not taken. `as_of_s` is the time, in seconds since the epoch,
        from which the acceptance estimates decay; by default, the time of their newest round.
        """
        content = _read(self.path)
        if content is None:
            return Recalled.NOTHING
        try:
            if (content["format"], content["signature"]) != (FORMAT, self._signature):
                raise StateFileMismatchError(
                    f"{self.path} is of other engines or drafters, or of another release; "
                    "measuring starts anew"
                )
            acceptance = AcceptanceEstimates.of_state(content["acceptance"], as_of_s)
            # Times do not fade while the server is off: the machine is the same.
            costs = CostEstimates.of_state(content["costs"], time.time())
            has_times = content["machine"] == self.machine
            for drafter in self._replaced(content):
                acceptance.forget(drafter)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateFileMismatchError(
                f"{self.path} is damaged ({error}); measuring starts anew"
            ) from error
        controller.take(acceptance, costs if has_times else None)
        return Recalled.ALL if has_times else Recalled.ACCEPTANCE

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
