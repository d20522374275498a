"""The executor, with the order of calls of tensorrt_llm/_torch/pyexecutor/py_executor.py.

It has no overlap scheduler. An exception of the drafter ends all requests, as there.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import Any

from tensorrt_llm._torch.pyexecutor.llm_request import LlmRequest, LlmRequestState
from tensorrt_llm._torch.pyexecutor.scheduler import ScheduledRequests

CONTEXT, GENERATION, COMPLETE = LlmRequestState


class PyExecutor:
    """The executor's loop on a thread of its own."""

    def __init__(
        self, target: Any, speculation: Any, max_batch_size: int, vocab_size: int
    ) -> None:
        self.num_verified: list[int] = []
        """Draft tokens of each request in each step, without padding."""
        self._target = target
        self._speculation = speculation
        self._max_batch_size = max_batch_size
        self._vocab_size = vocab_size
        self._numbers = itertools.count(2048)
        self._active: list[LlmRequest] = []
        self._new: deque[LlmRequest] = deque()
        self._cancelled: set[int] = set()
        self._paused: set[int] = set()
        self._changed = threading.Condition()
        self._is_open = True
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def enqueue(self, prompt: list[int], params: Any, result: Any) -> None:
        """Take a new request."""
        with self._changed:
            self._new.append(LlmRequest(next(self._numbers), prompt, params, result))
            self._changed.notify()

    def cancel(self, client_id: int) -> None:
        """End a request in the next step."""
        with self._changed:
            self._cancelled.add(client_id)

    def pause(self, client_id: int) -> None:
        """Free a request's cache in the next step, so that its text is read again."""
        with self._changed:
            self._paused.add(client_id)

    def is_shutdown(self) -> bool:
        return not self._is_open

    def shutdown(self) -> None:
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._active or self._new or not self._is_open)
                if not self._is_open:
                    self._end_all("the executor has shut down")
                    return
                while self._new and len(self._active) < self._max_batch_size:
                    self._active.append(self._new.popleft())
                cancelled, paused = {*self._cancelled}, {*self._paused}
                self._cancelled.clear()
                self._paused.clear()
            try:
                self._step(cancelled, paused)
            except Exception as error:  # noqa: BLE001 - as _handle_errors
                self._end_all(f"{type(error).__name__}: {error}")

    def _step(self, cancelled: set[int], paused: set[int]) -> None:
        for request in [each for each in self._active if each.py_client_id in paused]:
            request.state = CONTEXT
            self._free(request)
        scheduled = ScheduledRequests(
            [each for each in self._active if each.state == CONTEXT],
            [each for each in self._active if each.state == GENERATION],
        )
        self._prepare(scheduled)
        responses = []
        for request in (*scheduled.context_requests, *scheduled.generation_requests):
            if request.py_client_id in cancelled:
                request.state = COMPLETE
                responses.append((request, [], [], "cancelled"))
                continue
            responses.append((request, *self._forward(request)))
        ended = [request for request, *_, reason in responses if reason]
        self._active = [each for each in self._active if each not in ended]
        for request, tokens, log_probs, reason in responses:
            request.result.put(tokens, log_probs, reason)
        for request in ended:
            self._free(request)
        if self._speculation is not None and self._speculation.resource_manager is not None:
            self._speculation.resource_manager.update_resources(scheduled)

    def _prepare(self, scheduled: ScheduledRequests) -> None:
        """Ask the drafter, pad its drafts, and check them."""
        speculation = self._speculation
        if speculation is None:
            return
        for request in scheduled.generation_requests:
            request.py_draft_tokens = [0] * speculation.max_draft_len
        if speculation.resource_manager is not None:
            speculation.resource_manager.prepare_resources(scheduled)
        speculation.drafter.prepare_draft_tokens(scheduled, self)
        for request in scheduled.generation_requests:
            assert isinstance(request.py_draft_tokens, list)
            self.num_verified.append(len(request.py_draft_tokens))
        takes_resources = hasattr(speculation.drafter, "draft_len_schedule")
        speculation.drafter.pad_draft_tokens_for_cuda_graph(
            scheduled, *([self] if takes_resources else [])
        )
        for request in scheduled.generation_requests:
            drafts = request.py_draft_tokens
            assert len(drafts) == speculation.max_draft_len, "the batch needs drafts of one length"
            assert all(type(each) is int and 0 <= each < self._vocab_size for each in drafts)

    def _forward(self, request: LlmRequest) -> tuple[list[int], list[float], str | None]:
        """Return a request's tokens, their log-probabilities, and how it ended."""
        drafts = request.py_draft_tokens if request.state == GENERATION else []
        request.state = GENERATION
        room = request.num_left - 1
        found, found_log_probs = self._target.next_tokens(request, drafts[: max(0, room)])
        tokens, log_probs, reason = [], [], None
        for index, token in enumerate(found):
            request.add_new_token(token, 0)
            tokens.append(token)
            log_probs.append(found_log_probs[index])
            if token == request.py_end_id:
                reason = "stop"
            elif request.num_left == 0:
                reason = "length"
            if reason or index >= len(drafts) or drafts[index] != token:
                break
        if reason:
            request.state = COMPLETE
        return tokens, log_probs, reason

    def _free(self, request: LlmRequest) -> None:
        if self._speculation is not None and self._speculation.resource_manager is not None:
            self._speculation.resource_manager.free_resources(request)
        if request.state == COMPLETE:
            self._target.end(request)

    def _end_all(self, error: str) -> None:
        for request in (*self._active, *self._new):
            request.state = COMPLETE
            request.result.fail(error)
            self._free(request)
        self._active = []
        self._new.clear()
