"""Call our drafters in an engine's step so that their failures never fail the step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

logger = logging.getLogger("specdec.drafters")

Result = TypeVar("Result")

MAX_FAILURES = 3
"""Failures of our drafters in a row after which they are left out of all later steps."""


class Attempts:
    """The calls of our drafters in one engine's steps.

    A failure is logged and counted. After MAX_FAILURES in a row no more calls are made.
    """

    def __init__(self, report_failure: Callable[[Exception], None]) -> None:
        """Take the function that gets each error."""
        self._report_failure = report_failure
        self._num_failures = 0

    @property
    def are_over(self) -> bool:
        """Whether no more calls are made."""
        return self._num_failures >= MAX_FAILURES

    def run(self, action: Callable[..., Result], *args: object) -> Result | None:
        """Return the action's result; None if it fails, or if others failed before."""
        if self.are_over:
            return None
        try:
            return action(*args)
        except Exception as error:
            self._num_failures += 1
            with suppress(Exception):  # A report that fails must not fail the step.
                self._report_failure(error)
            logger.exception("our drafters failed %d times in a row", self._num_failures)
            return None

    def succeeded(self) -> None:
        """Reset the count, after a step without a failure."""
        self._num_failures = 0
