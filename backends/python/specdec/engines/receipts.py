"""Receipts for the responses of a streamed BLS call: the next is sent when the last is in hand.

In Triton's Python backend, a thread that waits for a response asks for the GIL again with the lock
of its stream in hand (`ResponseIterator::Next`, pb_response_iterator.cc). If the stream's next
response comes meanwhile, the thread that delivers them waits for that lock with the map of all
streams locked, and whoever holds the GIL and begins a call waits for the map: for ever. It cannot
happen to a stream whose engine waits for the reader, nor to a call that has one response.
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

from specdec.engines import contract

logger = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""A reader that is silent for longer has gone away, and does not wait for its stream."""

_CHECK_S = 0.25


class ReceiptDesk:
    """The engine's end: a local socket, and who is to hear of which receipt."""

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
        """Returns where the receipt of a response must go.

        `when_read` is called once: with the receipt, or when PATIENCE_S have passed.
        """
        number = str(next(self._numbers))
        with self._lock:
            self._expected[number] = time.monotonic() + PATIENCE_S, when_read
        return f"{self._name}/{number}"

    def close(self) -> None:
        """No receipt is heard of afterwards."""
        self._is_open = False
        self._thread.join(timeout=10)
        self._socket.close()

    def _run(self) -> None:
        check_s = time.monotonic() + _CHECK_S
        while self._is_open:
            with contextlib.suppress(TimeoutError):
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
    """Whether who asks for these of a model's outputs gives receipts.

    Who names none asks for all (Triton fills them in), and knows of no receipts.
    """
    return contract.RECEIPT_ADDRESS in requested and requested != configured


def receipt_outputs(address: str) -> dict[str, npt.NDArray[Any]]:
    """receipt_address [1]: where the reader says that it has a response."""
    return {contract.RECEIPT_ADDRESS: np.asarray([address.encode()], dtype=np.object_)}


def send_receipt(address: str) -> None:
    """The reader's end. An engine that is gone needs no receipt."""
    name, _, number = address.rpartition("/")
    with contextlib.suppress(OSError):
        _SENDER.sendto(number.encode(), _abstract(name))


_SENDER = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
atexit.register(_SENDER.close)


def _abstract(name: str) -> str:
    """Linux's abstract namespace: nothing in a file system to clean up."""
    return f"\0{name}"
