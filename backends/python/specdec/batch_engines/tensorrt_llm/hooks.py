"""Hook our drafters into the steps of TensorRT-LLM's PyTorch runtime.

Source of the names and of their order in a step: tensorrt_llm/_torch/speculative/drafter.py and
tensorrt_llm/_torch/pyexecutor/{py_executor,resource_manager,llm_request}.py, releases 1.0 to 1.3.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from specdec.batch_engines.attempts import Attempts
from specdec.batch_engines.requests import NewRequest
from specdec.batch_engines.step_drafting import StepDrafting

LENGTH_NAMES = ("max_draft_len", "max_total_draft_tokens", "max_draft_tokens")
"""Names of the most draft tokens of a request, in `Drafter` of different releases."""


class StepHooks:
    """The calls of our drafters in the steps of one TensorRT-LLM executor.

    `register` and `forget` may be called on any thread, all else runs on the executor's. An
    exception in a call of the executor would end its thread, so none leaves these methods.
    """

    def __init__(self, drafting: StepDrafting) -> None:
        self._drafting = drafting
        self._attempts = Attempts(drafting.step_failed)
        self._new: dict[int, NewRequest] = {}
        """Requests by client id that no step has seen."""
        self._num_seen: dict[int, int] = {}
        """Tokens that our drafters have seen of each running request, prompt included; the keys are
        client ids."""

    def register(self, client_id: int, request: NewRequest) -> None:
        """Take a new request; steps before this call go without draft tokens for it."""
        self._new[client_id] = request

    def forget(self, client_id: int) -> None:
        """Drop a request whose answer has ended, if no step has seen it."""
        self._new.pop(client_id, None)

    def prepare(self, requests: Sequence[Any]) -> None:
        """Set the draft tokens of all requests (LlmRequest) that generate in the next step."""
        found = self._attempts.run(self._drafts, requests) or [[] for _ in requests]
        for request, tokens in zip(requests, found, strict=True):
            # TensorRT-LLM has reserved room by tokens of its own, and pads ours to that length.
            request.py_draft_tokens = tokens

    def free(self, request: Any) -> None:
        """Take the last tokens of a request that has ended.

        TensorRT-LLM also calls this for a request that it pauses and will read again.
        """
        self._attempts.run(self._end, request)

    def _drafts(self, requests: Sequence[Any]) -> list[list[int]]:
        client_ids = [each.py_client_id for each in requests]
        self._drafting.begin_step([*filter(None, map(self._begun, client_ids))], ())
        step_ids = [str(each) for each in client_ids]
        sampled = [self._unseen(each) for each in requests]
        drafts = self._drafting.end_step(step_ids, sampled, {})
        self._attempts.succeeded()
        return drafts

    def _begun(self, client_id: int) -> NewRequest | None:
        """Return the request if no step has seen it."""
        request = self._new.pop(client_id, None)
        if request is not None:
            self._num_seen[client_id] = len(request.prompt)
        return request

    def _end(self, request: Any) -> None:
        if request.state.name != "GENERATION_COMPLETE":
            return
        client_id = request.py_client_id
        self._new.pop(client_id, None)
        tokens = self._unseen(request)
        if self._num_seen.pop(client_id, None) is not None:
            self._drafting.finish(str(client_id), tokens)

    def _unseen(self, request: Any) -> list[int]:
        """Return the tokens that our drafters have not seen; none of a request that is not ours."""
        first = self._num_seen.get(request.py_client_id)
        if first is None:
            return []
        after = self._num_seen[request.py_client_id] = request.get_num_tokens(0)
        return [request.get_token(0, position) for position in range(first, after)]


def drafter_object(base: type[Any], hooks: StepHooks, max_draft_len: int) -> Any:
    """Return an object of a subclass of TensorRT-LLM's `Drafter` that asks our drafters."""
    given = inspect.signature(base.__init__).parameters
    taken = {name: max_draft_len for name in LENGTH_NAMES if name in given}

    class SpecdecDrafter(base):  # type: ignore[misc]
        _needs_padding_kv_extension = True
        """True: TensorRT-LLM then extends the KV cache for padding (from 1.3 on)."""

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
