"""What the controller has measured, in a small file that survives a restart.

Written beside itself and renamed, so that a crash leaves the old one. It carries the signature of
the deployment that it was measured on, and is worth nothing to another.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from specdec.control.acceptance_book import Tally
from specdec.control.baselines import Baseline
from specdec.control.controller import Controller
from specdec.control.fits import Fit, Recent

FORMAT = 1


class MemoryMismatchError(Exception):
    """The file was written for another deployment, or cannot be read."""


class Memory:
    """Of one deployment."""

    def __init__(self, path: Path, signature: str) -> None:
        """`signature`: of the engines and drafters that the measurements are of."""
        self.path = path
        self._signature = signature

    def save(self, controller: Controller) -> None:
        """Raises OSError."""
        with controller.lock:
            content = {
                "format": FORMAT,
                "signature": self._signature,
                "tallies": [
                    [list(key), asdict(tally)] for key, tally in controller.book.tallies.items()
                ],
                "passes": [[key, _fit(fit)] for key, fit in controller.costs.passes.items()],
                "drafts": [[list(key), _fit(fit)] for key, fit in controller.costs.drafts.items()],
                "bends": [
                    [list(key), bend.mean_s, bend.num_samples]
                    for key, bend in controller.costs.bends.items()
                ],
                "baselines": [
                    [key, each.steps.mean_s, each.steps.num_samples]
                    for key, each in controller.costs.baselines.items()
                ],
                "prompts": [[key, _fit(fit)] for key, fit in controller.costs.prompts.items()],
            }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        new.write_text(json.dumps(content), "utf-8")
        new.replace(self.path)

    def load(self, controller: Controller) -> bool:
        """Whether there was a file. Raises MemoryMismatchError, with nothing taken from it."""
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise MemoryMismatchError(f"{self.path} cannot be read: {error}") from error
        try:
            content = json.loads(text)
            found = content["format"], content["signature"]
            if found != (FORMAT, self._signature):
                raise MemoryMismatchError(
                    f"{self.path} is of other engines or drafters; measuring starts anew"
                )
            tallies = {tuple(key): _tally(value) for key, value in content["tallies"]}
            passes = {int(key): _read_fit(value, 5) for key, value in content["passes"]}
            drafts = {
                (str(name), int(bucket)): _read_fit(value, 3)
                for (name, bucket), value in content["drafts"]
            }
            bends = {
                (str(name), int(bucket), int(length)): Recent(_finite(mean_s), int(count))
                for (name, bucket, length), mean_s, count in content["bends"]
            }
            baselines = {
                int(key): Baseline(Recent(_finite(mean_s), int(count)), num_fresh=int(count))
                for key, mean_s, count in content["baselines"]
            }
            prompts = {str(key): _read_fit(value, 2) for key, value in content["prompts"]}
        except (ValueError, KeyError, TypeError) as error:
            raise MemoryMismatchError(
                f"{self.path} is damaged ({error}); measuring starts anew"
            ) from error
        with controller.lock:
            controller.book.tallies.update(tallies)
            controller.costs.passes.update(passes)
            controller.costs.drafts.update(drafts)
            controller.costs.prompts.update(prompts)
            controller.costs.bends.update(bends)
            controller.costs.baselines.update(baselines)
            controller.costs.restored()
        return True


def _fit(fit: Fit) -> dict[str, Any]:
    return {
        "products": fit.products.tolist(),
        "moments": fit.moments.tolist(),
        "num_samples": fit.num_samples,
        "weight": fit.weight,
    }


def _read_fit(value: dict[str, Any], size: int) -> Fit:
    fit = Fit(size)
    products, moments = np.array(value["products"]), np.array(value["moments"])
    if products.shape != (size, size) or moments.shape != (size,):
        raise ValueError(f"a fit of {products.shape}, not {size} features")
    if not (np.isfinite(products).all() and np.isfinite(moments).all()):
        raise ValueError("a fit that is not finite")
    fit.products, fit.moments = products, moments
    fit.num_samples, fit.weight = int(value["num_samples"]), float(value["weight"])
    return fit


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
