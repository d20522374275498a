"""Receipts for streamed BLS calls: each response waits until the reader has the previous one.

They prevent a deadlock of three threads in Triton's Python backend (docs/triton-pitfalls.md):

1. A thread that waits for a response asks for the GIL while it holds the lock of its stream
   (`ResponseIterator::Next`, pb_response_iterator.cc).
2. If the stream's next response comes meanwhile, the thread that delivers responses waits for that
   lock while it holds the lock of the map of all streams.
3. A thread that holds the GIL and begins a call waits for the map's lock, for ever.

The deadlock cannot happen if the engine waits for the reader, or if a call has one response.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.engines.wire import contract

logger = logging.getLogger(__name__)

RECEIPT_WAIT_S = 1.0
"""Seconds without a receipt after which a reader counts as gone, and the stream goes on."""

_CHECK_S = 0.25
"""Seconds between two checks for readers that have gone."""


class ReceiptDesk:
    """The engine's side: a local socket, and the streams that wait for a receipt.

    The desk reads the socket on a thread of its own.
    """

    def __init__(self) -> None:
        self._name = f"specdec-receipts-{secrets.token_hex(12)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(_abstract(self._name))
        self._socket.settimeout(_CHECK_S)
        self._numbers = itertools.count()
        self._expected: dict[str, tuple[float, Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name="receipts", daemon=True)
        self._thread.start()

    def expect(self, when_read: Callable[[], None]) -> str:
        """Return the address to which the reader must send the receipt of a response.

        `when_read` is called once on the desk's thread: when the receipt comes, or after
        RECEIPT_WAIT_S without it. An exception that it raises is logged.
        """
        number = str(next(self._numbers))
        with self._lock:
            self._expected[number] = time.monotonic() + RECEIPT_WAIT_S, when_read
        return f"{self._name}/{number}"

    def close(self) -> None:
        """Stop reading receipts; no `when_read` is called afterwards."""
        self._is_open = False
        self._thread.join(timeout=10)
        self._socket.close()

    def _run(self) -> None:
        check_s = time.monotonic() + _CHECK_S
        while self._is_open:
            with contextlib.suppress(OSError):  # For example, no receipt came in time.
                self._settle(self._socket.recv(64).decode(errors="replace"))
            if time.monotonic() > check_s:
                with self._lock:
                    expected = [*self._expected.items()]
                for number, (due_s, _) in expected:
                    if due_s < time.monotonic():
                        self._settle(number)
                check_s = time.monotonic() + _CHECK_S

    def _settle(self, number: str) -> None:
        with self._lock:
            expected = self._expected.pop(number, None)
        if expected is not None:
            try:
                expected[1]()
            except Exception:
                logger.exception("a stream that was read could not go on")


def gives_receipts(requested: frozenset[str], configured: frozenset[str]) -> bool:
    """Return whether a caller that asks for the outputs `requested` will send receipts.

    `configured` are all outputs of the model. Triton requests them all for a caller that names no
    outputs, and such a caller does not know about receipts.
    """
    return contract.RECEIPT_ADDRESS in requested and requested != configured


def receipt_outputs(address: str) -> dict[str, npt.NDArray[Any]]:
    """Return the output receipt_address [1] with the address for the receipt of a response."""
    return {contract.RECEIPT_ADDRESS: np.asarray([address.encode()], dtype=np.object_)}


def send_receipt(address: str) -> None:
    """Send the receipt of a response to its address; do nothing if the engine has gone."""
    name, _, number = address.rpartition("/")
    with contextlib.suppress(OSError):
        _SENDER.sendto(number.encode(), _abstract(name))


_SENDER = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
atexit.register(_SENDER.close)


def _abstract(name: str) -> str:
    """Return the socket address of `name` in Linux's abstract namespace.

    Such an address leaves nothing in the file system to clean up.
    """
    return f"\0{name}"
