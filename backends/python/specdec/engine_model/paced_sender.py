"""Make the streams of NVIDIA's `llmapi` model wait for readers that give receipts.

engines/wire/receipts.py explains why streams must wait.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.engines.wire.receipts import ReceiptDesk, receipt_outputs
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.tensors import FINAL


class PacedRequest:
    """A Triton request whose response sender is a PacedSender; the rest is unchanged."""

    def __init__(self, request: Any, desk: ReceiptDesk, outbox: Outbox) -> None:
        self._request = request
        self._sender = PacedSender(request.get_response_sender(), desk, outbox)

    def get_response_sender(self) -> PacedSender:
        return self._sender

    def is_cancelled(self) -> bool:
        return self._sender.is_cancelled()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


class PacedSender:
    """A response sender that waits for the reader's receipt before it sends the next response.

    If several responses wait, only the newest is sent. So each response must repeat everything in
    the earlier ones, as the text of the `llmapi` model does.
    """

    def __init__(self, sender: Any, desk: ReceiptDesk, outbox: Outbox) -> None:
        self._sender = sender
        self._desk = desk
        self._outbox = outbox
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        """Lock for asking Triton whether the client has gone, which takes a while."""
        self._waiting: Any = None
        """The newest response that has not been sent."""
        self._is_last = False
        self._is_unread = False

    def send(self, response: Any = None, flags: int = 0) -> None:
        """Send or queue a response and return at once; the arguments are those of Triton's sender.

        FINAL in `flags` marks the last response; later calls are ignored.
        """
        is_last = bool(flags & FINAL)
        with self._asking if is_last else nullcontext(), self._lock:
            if self._is_last:
                return
            self._is_last = is_last
            if response is not None:
                self._waiting = response
            self._send()

    def is_cancelled(self) -> bool:
        """Say whether the reader has gone; false after the last response.

        Triton frees the request with its last response and must not be asked about it afterwards.
        """
        with self._asking:
            return not self._is_last and bool(self._sender.is_cancelled())

    def _go_on(self) -> None:
        with self._lock:
            self._is_unread = False
            self._send()

    def _send(self) -> None:
        if self._is_unread or (self._waiting is None and not self._is_last):
            return
        response, self._waiting = self._waiting, None
        if self._is_last:
            self._outbox.put_last(self._sender, lambda: response)
            return
        self._is_unread = True
        response = _with_receipt(response, self._desk.expect(self._go_on))
        self._outbox.put(lambda: self._sender.send(response, flags=0))


def _with_receipt(response: Any, address: str) -> Any:
    tensors = [pb_utils.Tensor(*each) for each in receipt_outputs(address).items()]
    return pb_utils.InferenceResponse([*response.output_tensors(), *tensors])
