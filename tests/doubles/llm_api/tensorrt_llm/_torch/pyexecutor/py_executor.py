"""The executor, with the order of calls of tensorrt_llm/_torch/pyexecutor/py_executor.py.

It has no overlap scheduler. An exception of the model ends the requests of a step; one of the
drafter or the resource manager ends the executor's thread, as there.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from tensorrt_llm import __version__
from tensorrt_llm._torch.pyexecutor.llm_request import LlmRequest, LlmRequestState
from tensorrt_llm._torch.pyexecutor.scheduler import ScheduledRequests
from tensorrt_llm.sampling_params import SamplingParams

CONTEXT, GENERATION, COMPLETE = LlmRequestState


class PyExecutor:
    """The executor's loop on a thread of its own."""

    def __init__(self, target: Any, speculation: Any, max_batch_size: int, vocab_size: int) -> None:
        self.verified: list[tuple[list[int], list[int]]] = []
        """Draft without padding, and confirmed tokens, of each request in each step with one."""
        self.params: list[Any] = []
        """Sampling parameters of all requests."""
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
        self._own: dict[int, int] = {}
        """Length of the draft without padding, by request."""
        self._warm_up()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def enqueue(self, prompt: list[int], params: Any, result: Any) -> None:
        """Take a new request."""
        with self._changed:
            self.params.append(params)
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

    def _warm_up(self) -> None:
        """Free a request that no client has, as after the estimate of the KV cache's size."""
        request = LlmRequest(next(self._numbers), [1], SamplingParams(), None)
        request.state = COMPLETE
        self._free(request)

    def _loop(self) -> None:
        try:
            while self._goes_on():
                self._step()
        finally:
            self._is_open = False
            self._end_all(self._active, "the executor has shut down")
            self._end_all([*self._new], "the executor has shut down")

    def _goes_on(self) -> bool:
        """Wait until there is a request, and take new ones; return False after a shutdown."""
        with self._changed:
            self._changed.wait_for(lambda: self._active or self._new or not self._is_open)
            for request in [each for each in self._new if each.py_client_id in self._cancelled]:
                self._cancelled.discard(request.py_client_id)
                self._new.remove(request)
                request.result.put([], [], "cancelled")
            while self._new and len(self._active) < self._max_batch_size:
                self._active.append(self._new.popleft())
            return self._is_open

    def _step(self) -> None:
        for request in self._active:
            if request.py_client_id in self._paused and request.state == GENERATION:
                self._paused.discard(request.py_client_id)
                request.state = CONTEXT
                self._free(request)
        scheduled = ScheduledRequests(
            [each for each in self._active if each.state == CONTEXT],
            [each for each in self._active if each.state == GENERATION],
        )
        self._prepare(scheduled)
        requests = (*scheduled.context_requests, *scheduled.generation_requests)
        try:
            responses = [(request, *self._forward(request)) for request in requests]
        except Exception as error:  # noqa: BLE001 - as _handle_errors
            self._end_all(requests, f"{type(error).__name__}: {error}")
            return
        ended = []
        for request, tokens, log_probs, found in responses:
            reason = found
            if reason is None and request.py_client_id in self._cancelled:
                reason = "cancelled"
            self._cancelled.discard(request.py_client_id)
            if reason is not None:
                request.state = COMPLETE
                self._active.remove(request)
                ended.append(request)
            request.result.put(tokens, log_probs, reason)
        for request in ended:
            self._free(request)
        manager = self._manager
        if manager is not None:
            manager.update_resources(scheduled)

    @property
    def _manager(self) -> Any:
        return None if self._speculation is None else self._speculation.resource_manager

    def _prepare(self, scheduled: ScheduledRequests) -> None:
        """Ask the drafter, pad its drafts, and check them."""
        speculation = self._speculation
        if speculation is None:
            return
        for request in scheduled.generation_requests:
            request.py_draft_tokens = [0] * speculation.max_draft_len
        if self._manager is not None:
            self._manager.prepare_resources(scheduled)
        speculation.drafter.prepare_draft_tokens(scheduled, self)
        for request in scheduled.generation_requests:
            assert isinstance(request.py_draft_tokens, list)
            self._own[request.request_id] = len(request.py_draft_tokens)
        resources = [self] if __version__.startswith("1.3") else []
        speculation.drafter.pad_draft_tokens_for_cuda_graph(scheduled, *resources)
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
        own = drafts[: self._own.pop(request.request_id, 0)]
        if own:
            self.verified.append((own, tokens))
        return tokens, log_probs, reason

    def _free(self, request: LlmRequest) -> None:
        if self._manager is not None:
            self._manager.free_resources(request)
        if request.state == COMPLETE:
            self._target.end(request)

    def _end_all(self, requests: Iterable[LlmRequest], error: str) -> None:
        for request in [*requests]:
            request.state = COMPLETE
            if request in self._active:
                self._active.remove(request)
            request.result.fail(error)
            self._free(request)
