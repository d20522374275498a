"""Let drafters inside an engine call draft models that are Triton models of the server.

Only the process of the Triton model can call other models. An engine that runs in it has
`LocalDraftModels`. One with a worker process has `DraftRelay` in the model's process, and
`RelayedDraftModels` in the worker's. Each draft model has a thread, and with a relay a connection,
of its own, so that one that hangs holds up no other.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

from specdec.drafting.models.postponed import DraftCall
from specdec.errors import (
    DraftTimeoutError,
    EngineFailedError,
    InvalidRequestError,
    SpecdecError,
    UnsupportedError,
)
from specdec.token_ids import TokenIds

Drafts = list[tuple[int, ...]]
AskDraftModel = Callable[[str, Sequence[TokenIds], Sequence[str], int], Drafts]
"""Function that asks a draft model: see `engine_model.draft_model_calls.ask_draft_model`."""

Answer = tuple[Drafts, Exception | None]
"""The drafts of a call, and the error if it has failed."""

_REFUSALS: dict[str, type[SpecdecError]] = {
    each.error_type: each for each in (InvalidRequestError, UnsupportedError)
}
"""Errors by which a model blames the request, by `error_type`."""


class LocalDraftModels:
    """The draft models, for drafters in the process of the Triton model.

    A `DraftModels` (batch_drafting/draft_models.py).
    """

    def __init__(self, ask: AskDraftModel, vocab_size: int) -> None:
        """Take the function that asks a model, and the number of tokens that drafts may have."""
        self._ask = ask
        self._vocab_size = vocab_size
        self._models: dict[str, _ModelThread] = {}

    def draft(self, model: str, calls: Sequence[DraftCall], timeout_s: float) -> Drafts:
        """Return the drafts, as `DraftModels` describes."""
        thread = self._models.get(model)
        if thread is None:
            thread = self._models[model] = _ModelThread(model, self._ask)
        drafts, error = thread.call(calls, timeout_s)
        if error is not None:
            raise error
        return _checked(drafts, model, self._vocab_size)


class _ModelThread:
    """A daemon thread that calls one draft model, so that a call that hangs is not waited for."""

    def __init__(self, model: str, ask: AskDraftModel) -> None:
        self._model = model
        self._ask = ask
        self._calls: queue.SimpleQueue[Sequence[DraftCall]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._is_unanswered = False
        threading.Thread(target=self._run, name=f"draft-{model}", daemon=True).start()

    def call(self, calls: Sequence[DraftCall], timeout_s: float) -> Answer:
        """Return the model's answer. Raises DraftTimeoutError if none comes in time."""
        deadline_s = time.monotonic() + timeout_s
        if self._is_unanswered:
            self._answer(deadline_s)
        self._is_unanswered = True
        self._calls.put(calls)
        return self._answer(deadline_s)

    def _answer(self, deadline_s: float) -> Answer:
        try:
            answer = self._answers.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            raise _timeout(self._model) from None
        self._is_unanswered = False
        return answer

    def _run(self) -> None:
        while True:
            arguments = _arguments(self._calls.get())
            try:
                self._answers.put((self._ask(self._model, *arguments), None))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                self._answers.put(([], error))


class RelayedDraftModels:
    """The draft models, for drafters in the worker's process: a DraftRelay calls them."""

    def __init__(self, address: str, vocab_size: int) -> None:
        """Take the relay's address, and the number of tokens that drafts may have."""
        self._address = address
        self._vocab_size = vocab_size
        self._connections: dict[str, Connection] = {}
        self._unanswered: set[str] = set()
        """Models that have not answered the last call."""

    def draft(self, model: str, calls: Sequence[DraftCall], timeout_s: float) -> Drafts:
        """Return the drafts, as `DraftModels` describes."""
        deadline_s = time.monotonic() + timeout_s
        try:
            # The relay reads no call before it has answered the last one, so sending might wait.
            if model in self._unanswered:
                self._answer(model, deadline_s)
            self._send(model, calls)
            drafts, error_type, message = self._answer(model, deadline_s)
        except (OSError, EOFError) as error:
            raise EngineFailedError(f"the relay to {model} has ended: {error}") from error
        if message:
            raise _REFUSALS.get(error_type, EngineFailedError)(message)
        return _checked([tuple(each) for each in drafts], model, self._vocab_size)

    def _send(self, model: str, calls: Sequence[DraftCall]) -> None:
        connection = self._connections.get(model)
        if connection is None:
            connection = self._connections[model] = Client(f"\0{self._address}", family="AF_UNIX")
        contexts, salts, num_tokens = _arguments(calls)
        header = model, [len(each) for each in contexts], salts, num_tokens
        connection.send_bytes(json.dumps(header).encode())
        connection.send_bytes(np.concatenate(contexts).tobytes())
        self._unanswered.add(model)

    def _answer(self, model: str, deadline_s: float) -> tuple[list[list[int]], str, str]:
        """Return the drafts of a model's outstanding call, or type and message of its error.

        Raises DraftTimeoutError if no answer comes before `deadline_s`.
        """
        connection = self._connections[model]
        if not connection.poll(max(0.0, deadline_s - time.monotonic())):
            raise _timeout(model)
        drafts, error_type, message = json.loads(connection.recv_bytes())
        self._unanswered.discard(model)
        return drafts, error_type, message


class DraftRelay:
    """Calls draft models for the worker, in the model's process."""

    def __init__(self, ask: AskDraftModel) -> None:
        """Listen in Linux's abstract namespace, which leaves nothing in the file system."""
        self.address = f"specdec-drafts-{secrets.token_hex(12)}"
        """Address for RelayedDraftModels."""
        self._ask = ask
        self._listener = Listener(f"\0{self.address}", family="AF_UNIX")
        threading.Thread(target=self._accept, name="draft-relay", daemon=True).start()

    def close(self) -> None:
        """Accept no further connection; each ends with the worker."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                thread.start()

    def _serve(self, connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):
            while True:
                self._relay(connection)

    def _relay(self, connection: Connection) -> None:
        model, lengths, salts, num_tokens = json.loads(connection.recv_bytes())
        ids = np.frombuffer(connection.recv_bytes(), dtype=np.int32)
        drafts, error_type, message = [], "", ""
        try:
            contexts = np.split(ids, np.cumsum(lengths)[:-1])
            drafts = self._ask(model, contexts, salts, num_tokens)
        except Exception as error:  # noqa: BLE001 - the worker gets it
            error_type = getattr(error, "error_type", "")
            message = str(error).removeprefix(f"{error_type}: ") or type(error).__name__
        connection.send_bytes(json.dumps((drafts, error_type, message)).encode())


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


def _timeout(model: str) -> DraftTimeoutError:
    return DraftTimeoutError(f"{model} has sent no drafts in time (draft_budget_ms)")
