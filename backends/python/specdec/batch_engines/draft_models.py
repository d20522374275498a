"""Let drafters inside an engine call draft models that are Triton models of the server.

Only the process of the Triton model can call other models. An engine that runs in it has
`LocalDraftModels`. One with a worker process has `DraftRelay` in the model's process, and
`RelayedDraftModels` in the worker's, which are connected by a local socket.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

from specdec.drafting.models.postponed import DraftCall
from specdec.errors import DraftTimeoutError, EngineFailedError
from specdec.token_ids import TokenIds

logger = logging.getLogger("specdec.drafters")

Drafts = list[tuple[int, ...]]
AskDraftModel = Callable[[str, Sequence[TokenIds], Sequence[str], int], Drafts]
"""Function that asks a draft model: see `engine_model.draft_model_calls.ask_draft_model`."""


class LocalDraftModels:
    """The draft models, called on a thread of their own, so that no step waits for one that hangs.

    A `DraftModels` (batch_drafting/draft_models.py) for one thread.
    """

    def __init__(self, ask: AskDraftModel, vocab_size: int) -> None:
        """`vocab_size` is the target's; a draft with other tokens counts as a failure."""
        self._ask = ask
        self._vocab_size = vocab_size
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="draft-models")
        self._running: Future[Drafts] | None = None

    def draft(self, model: str, calls: Sequence[DraftCall], timeout_s: float) -> Drafts:
        """Return the drafts, as `DraftModels` describes."""
        if self._running is not None and not self._running.done():
            raise DraftTimeoutError(f"{model} was not asked: an earlier call still runs")
        self._running = self._thread.submit(self._ask, model, *_arguments(calls))
        try:
            return _checked(self._running.result(timeout_s), model, self._vocab_size)
        except FutureTimeoutError:
            raise _timeout(model, timeout_s) from None


class RelayedDraftModels:
    """The worker's end: the draft models, called by the model's process."""

    def __init__(self, address: str, vocab_size: int) -> None:
        """Connect to a DraftRelay. Raises OSError if it has gone."""
        self._connection = Client(f"\0{address}", family="AF_UNIX")
        self._vocab_size = vocab_size
        self._number = 0
        self._is_unanswered = False

    def draft(self, model: str, calls: Sequence[DraftCall], timeout_s: float) -> Drafts:
        """Return the drafts, as `DraftModels` describes."""
        deadline_s = time.monotonic() + timeout_s
        try:
            # The relay reads nothing while it waits for a model, so sending might wait too.
            if self._is_unanswered and self._answer(deadline_s) is None:
                raise DraftTimeoutError(f"{model} was not asked: an earlier call still runs")
            self._send(model, calls)
            answer = self._answer(deadline_s)
        except (OSError, EOFError) as error:
            raise EngineFailedError(f"the relay to {model} has ended: {error}") from error
        if answer is None:
            raise _timeout(model, timeout_s)
        drafts, failure = answer
        if failure:
            raise EngineFailedError(failure)
        return _checked([tuple(each) for each in drafts], model, self._vocab_size)

    def _send(self, model: str, calls: Sequence[DraftCall]) -> None:
        contexts, salts, num_tokens = _arguments(calls)
        header = model, [len(each) for each in contexts], salts, num_tokens
        self._connection.send_bytes(json.dumps(header).encode())
        self._connection.send_bytes(np.concatenate(contexts).tobytes())
        self._is_unanswered = True

    def _answer(self, deadline_s: float) -> tuple[list[list[int]], str] | None:
        """Return the drafts and the failure of the one call without an answer; None in time."""
        if not self._connection.poll(max(0.0, deadline_s - time.monotonic())):
            return None
        drafts, failure = json.loads(self._connection.recv_bytes())
        self._is_unanswered = False
        return drafts, failure


class DraftRelay:
    """The model's end: a thread that calls draft models for the worker."""

    def __init__(self, ask: AskDraftModel) -> None:
        """Listen in Linux's abstract namespace, which leaves nothing in the file system."""
        self.address = f"specdec-drafts-{secrets.token_hex(12)}"
        """Address for RelayedDraftModels."""
        self._ask = ask
        self._listener = Listener(f"\0{self.address}", family="AF_UNIX")
        threading.Thread(target=self._run, name="draft-relay", daemon=True).start()

    def close(self) -> None:
        """Accept no worker any more; the connection ends with the worker."""
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError, EOFError), self._listener.accept() as connection:
            while True:
                self._relay(connection)

    def _relay(self, connection: Connection) -> None:
        model, lengths, salts, num_tokens = json.loads(connection.recv_bytes())
        ids = np.frombuffer(connection.recv_bytes(), dtype=np.int32)
        drafts, failure = [], ""
        try:
            contexts = np.split(ids, np.cumsum(lengths)[:-1])
            drafts = self._ask(model, contexts, salts, num_tokens)
        except Exception as error:  # noqa: BLE001 - the worker gets it
            failure = str(error)
        connection.send_bytes(json.dumps((drafts, failure)).encode())


def _arguments(calls: Sequence[DraftCall]) -> tuple[list[TokenIds], list[str], int]:
    """Return the contexts, their salts, and the most tokens of a draft."""
    contexts, salts = [each.context for each in calls], [each.cache_salt for each in calls]
    return contexts, salts, max(each.num_tokens for each in calls)


def _checked(drafts: Drafts, model: str, vocab_size: int) -> Drafts:
    # A token outside the vocabulary would end the engine.
    wrong = [token for draft in drafts for token in draft if not 0 <= token < vocab_size]
    if wrong:
        raise EngineFailedError(
            f"{model} drafted token {wrong[0]}; the target's vocabulary has {vocab_size}"
        )
    return drafts


def _timeout(model: str, timeout_s: float) -> DraftTimeoutError:
    return DraftTimeoutError(f"{model} has sent no drafts within {1000 * timeout_s:.0f} ms")
