"""Hook our drafters into the steps of TensorRT-LLM's PyTorch runtime.

Source of the names and of their order in a step: tensorrt_llm/_torch/speculative/drafter.py and
tensorrt_llm/_torch/pyexecutor/{py_executor,resource_manager,llm_request}.py, releases 1.0 to 1.3.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from specdec.batch_engines.attempts import Attempts
from specdec.batch_engines.step_drafting import NewRequest, StepDrafting

LENGTH_NAMES = ("max_draft_len", "max_total_draft_tokens", "max_draft_tokens")
"""Names of the most draft tokens of a request, in `Drafter` of different releases."""


class StepHooks:
    """What our drafters do in a step.

    `register` and `forget` may be called on any thread, all else runs on the executor's.
    """

    def __init__(self, drafting: StepDrafting, max_draft_len: int) -> None:
        """`max_draft_len` is the most draft tokens of a request."""
        self._drafting = drafting
        self._max_draft_len = max_draft_len
        self._attempts = Attempts(drafting.step_failed)
        self._new: dict[int, NewRequest] = {}
        """Requests by client id that no step has seen."""
        self._num_seen: dict[str, int] = {}
        """Tokens of each running request that our drafters have seen, prompt included."""

    def register(self, client_id: int, request: NewRequest) -> None:
        """Take a new request; steps before this call go without draft tokens for it."""
        self._new[client_id] = request

    def forget(self, client_id: int) -> None:
        """Drop a request whose answer has ended, if no step has seen it."""
        self._new.pop(client_id, None)

    def prepare(self, requests: Sequence[Any]) -> None:
        """Set the draft tokens of all requests (LlmRequest) that generate in the next step."""
        for request in requests:
            # TensorRT-LLM reserved room by draft tokens of its own, and pads ours to that length.
            request.py_draft_tokens = []
        found = self._attempts.run(self._drafts, requests)
        for request, tokens in zip(requests, found or (), strict=False):
            request.py_draft_tokens = tokens[: self._max_draft_len]

    def free(self, request: Any) -> None:
        """Take the last tokens of a request that has ended.

        TensorRT-LLM also calls this for a request that it pauses and will read again.
        """
        if request.state.name != "GENERATION_COMPLETE":
            return
        self._new.pop(request.py_client_id, None)
        step_id = str(request.py_client_id)
        if step_id in self._num_seen:
            self._attempts.run(self._finish, step_id, request)

    def _drafts(self, requests: Sequence[Any]) -> list[list[int]]:
        new = []
        for client_id in [each.py_client_id for each in requests]:
            if client_id in self._new:
                new.append(self._new.pop(client_id))
                self._num_seen[new[-1].step_id] = len(new[-1].prompt)
        self._drafting.begin_step(new, ())
        step_ids = [str(each.py_client_id) for each in requests]
        sampled = [
            self._unseen(step_id, request)
            for step_id, request in zip(step_ids, requests, strict=True)
        ]
        drafts = self._drafting.end_step(step_ids, sampled, {})
        self._attempts.succeeded()
        return drafts

    def _finish(self, step_id: str, request: Any) -> None:
        tokens = self._unseen(step_id, request)
        del self._num_seen[step_id]
        self._drafting.finish(step_id, tokens)

    def _unseen(self, step_id: str, request: Any) -> list[int]:
        """Return the tokens that our drafters have not seen; none of a request that is not ours."""
        num_seen = self._num_seen.get(step_id)
        if num_seen is None:
            return []
        tokens: list[int] = request.get_tokens(0)[num_seen:]
        self._num_seen[step_id] += len(tokens)
        return tokens


def drafter_object(base: type[Any], hooks: StepHooks, max_draft_len: int) -> Any:
    """Return an object of a subclass of TensorRT-LLM's `Drafter` that asks our drafters."""
    given = inspect.signature(base.__init__).parameters
    taken = {name: max_draft_len for name in LENGTH_NAMES if name in given}

    class SpecdecDrafter(base):  # type: ignore[misc]
        _needs_padding_kv_extension = True
        """As all drafters whose tokens TensorRT-LLM's Torch sampler verifies, from 1.3 on."""

        def __init__(self) -> None:
            super().__init__(**taken)
            # Padding reads one of these names, which early releases leave to the subclass.
            for name in LENGTH_NAMES:
                if name not in taken:
                    setattr(self, name, max_draft_len)

        def prepare_draft_tokens(
            self,
            scheduled_requests: Any,
            resource_manager: Any = None,  # noqa: ARG002 - the interface has it
        ) -> None:
            hooks.prepare(list(scheduled_requests.generation_requests))

    return SpecdecDrafter()


def resource_manager_object(base: type[Any], hooks: StepHooks, max_num_sequences: int) -> Any:
    """Return an object of a subclass of `BaseResourceManager` that sees requests end."""

    class SpecdecResources(base):  # type: ignore[misc]
        def get_max_resource_count(self) -> int:
            return max_num_sequences

        def get_needed_resource_to_completion(self, request: Any) -> int:  # noqa: ARG002
            return 0

        def free_resources(self, request: Any) -> None:
            hooks.free(request)

    return SpecdecResources()
