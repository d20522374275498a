"""Send an engine's answer to one call, in the tensors of NVIDIA's `tensorrtllm` backend."""

from __future__ import annotations

import threading
import time
from typing import Any

from specdec.engine_model.stream_pace import StreamPace
from specdec.engines.wire.engine_call import EngineCall
from specdec.engines.wire.engine_outputs import UnsentOutputs
from specdec.engines.wire.receipts import ReceiptDesk, receipt_outputs
from specdec.torch_engine.scheduling.failures import failure_of
from specdec.torch_engine.task import TaskOutput
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.tensors import error_response, response


class Reply:
    """The answer to one call; sends its task's outputs as they come, or together at the end.

    A stream gets a response with the first output that comes after the interval of `pace`. A reader
    that gives receipts must also have read the previous response. The response has all outputs
    since then.
    """

    def __init__(
        self, call: EngineCall, sender: Any, outbox: Outbox, desk: ReceiptDesk, pace: StreamPace
    ) -> None:
        self._call = call
        self._sender = sender
        self._outbox = outbox
        self._desk = desk
        self._pace = pace
        self._is_counted = False
        """Whether `pace` counts this stream."""
        self._due_s = 0.0
        """Time before which only the last response is sent, in seconds of time.monotonic()."""
        self._lock = threading.Lock()
        self._is_unread = False
        self._unsent = UnsentOutputs(call)
        self._waiting: TaskOutput | None = None
        """Newest unsent output; None if everything was sent."""

    def add(self, output: TaskOutput) -> None:
        """Take the task's next output on the engine's thread; queue a response if one is due."""
        with self._lock:
            if self._call.streaming and not self._is_counted:
                self._is_counted = True
                self._pace.begin()
            self._unsent.add(output)
            if self._call.streaming or output.is_final:
                self._waiting = output
                self._send()

    def _go_on(self) -> None:
        with self._lock:
            self._is_unread = False
            self._send()

    def _send(self) -> None:
        output = self._waiting
        if output is None or self._is_unread:
            return
        now_s = time.monotonic()
        if not output.is_final and now_s < self._due_s:
            return
        if output.is_final and self._is_counted:
            self._pace.end()
        self._due_s = now_s + self._pace.interval_s
        self._waiting = None
        if output.error is not None:
            error = output.error
            self._outbox.put_last(self._sender, lambda: error_response(error))
            return
        try:
            outputs = self._unsent.take()
        except Exception as error:  # noqa: BLE001 - the caller waits for an answer
            failure = failure_of("making a response", error)
            self._outbox.put_last(self._sender, lambda: error_response(failure))
            return
        if output.is_final:
            self._outbox.put_last(self._sender, lambda: response(outputs))
            return
        if self._call.gives_receipts:
            self._is_unread = True
            outputs |= receipt_outputs(self._desk.expect(self._go_on))
        self._outbox.put(lambda: self._sender.send(response(outputs)))
