"""Load a controller's measurements at the start, and keep them in a file that outlasts restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from specdec.steering.controller import Controller
from specdec.steering.state_file import Measurements, StateFile, StateFileMismatchError

SAVE_PERIOD_S = 30.0
"""Seconds between two writes of the controller's state file."""


class KeptMeasurements:
    """The files of one controller's measurements; a thread of its own writes the state file."""

    def __init__(
        self,
        controller: Controller,
        memory: StateFile | None,
        profile: StateFile | None,
        inform: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """Load earlier measurements into `controller`, and begin to save new ones.

        `memory` is the state file, which keeps measurements over restarts. `profile` is a file of
        measurements to begin with. Either may be None. `inform` and `warn` write a line to the
        server's log.
        """
        self._controller = controller
        self._memory = memory
        self._warn = warn
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        # A profile counts as measured now, so that its acceptance does not fade with its age.
        found = [*self._read(profile, time.time()), *self._read(memory, None)]
        # The newer file is taken last, so that its times are used.
        for source, measured in sorted(found, key=lambda each: each[1].saved_s):
            self._take(source, measured, inform)
        if memory is not None:
            self._thread = threading.Thread(target=self._keep, name="control-memory", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread that saves, and write the state file a last time."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._save()

    def _read(
        self, source: StateFile | None, as_of_s: float | None
    ) -> list[tuple[StateFile, Measurements]]:
        """Return the file with its measurements, or nothing if there are none to take."""
        if source is None:
            return []
        try:
            measured = source.read(as_of_s)
        except StateFileMismatchError as error:
            self._warn(str(error))
            return []
        if measured is None:
            self._warn(f"no measurements of acceptance and times yet: there is no {source.path}")
            return []
        return [(source, measured)]

    def _take(
        self, source: StateFile, measured: Measurements, inform: Callable[[str], None]
    ) -> None:
        self._controller.take(measured.acceptance, measured.costs)
        if measured.costs is None:
            self._warn(
                f"times in {source.path} are of another machine ({measured.machine}), this is "
                f"{source.machine}; measuring them starts anew"
            )
        else:
            inform(f"acceptance and times are taken from {source.path}")
        for drafter in sorted(measured.replaced):
            self._warn(
                f"{source.path} was written with other weights of {drafter}; its acceptance is "
                "measured anew"
            )

    def _keep(self) -> None:
        while not self._closing.wait(SAVE_PERIOD_S):
            self._save()

    def _save(self) -> None:
        assert self._memory is not None
        try:
            self._memory.save(self._controller)
        except OSError as error:
            self._warn(
                f"{self._memory.path} cannot be written, so a restart loses measurements: {error}"
            )
