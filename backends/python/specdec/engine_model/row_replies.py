"""Answer a call with several contexts: one response has the tokens of all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from specdec.engines.wire.engine_outputs import row_outputs
from specdec.torch_engine.task import TaskOutput
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.tensors import error_response, response


class RowReplies:
    """The answers to the contexts of one call. A context that fails has no tokens."""

    def __init__(self, num_rows: int, sender: Any, outbox: Outbox) -> None:
        self._sender = sender
        self._outbox = outbox
        self._lock = threading.Lock()
        self._rows: list[list[int]] = [[] for _ in range(num_rows)]
        self._num_running = num_rows
        self._errors: list[Exception] = []

    def receiver(self, row: int) -> Callable[[TaskOutput], None]:
        """Return the function that takes the outputs of one context's task."""

        def receive(output: TaskOutput) -> None:
            with self._lock:
                self._rows[row] += output.tokens
                if not output.is_final:
                    return
                if output.error is not None:
                    self._rows[row] = []
                    self._errors.append(output.error)
                self._num_running -= 1
                if not self._num_running:
                    self._send()

        return receive

    def _send(self) -> None:
        rows, errors = self._rows, self._errors
        if len(errors) == len(rows):
            self._outbox.put_last(self._sender, lambda: error_response(errors[0]))
        else:
            self._outbox.put_last(self._sender, lambda: response(row_outputs(rows)))
