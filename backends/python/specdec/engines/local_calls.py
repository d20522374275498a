"""Calls of a torch engine in this process, without Triton's tensors or a second process."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from queue import SimpleQueue

import numpy as np

from specdec.acceptance.modes import EXACT
from specdec.engines.calls import Call, CallOutput
from specdec.engines.protocol import EngineClock
from specdec.engines.wire.sampling_call import sampling_params
from specdec.engines.wire.sampling_inputs import Sampling, round_seed, sampling_inputs
from specdec.errors import EngineFailedError, SpecdecError
from specdec.torch_engine.engine import TorchEngine
from specdec.torch_engine.task import NO_TOKENS, Task, TaskOutput


class LocalCalls:
    """The calls of one request to one engine of this process; an `EngineCalls` (calls.py).

    The sampling parameters are converted once to the contract's tensors and back. So they are
    rounded as in a call over BLS, and the engine draws the same tokens.
    """

    def __init__(
        self,
        model: str,
        engine: TorchEngine,
        prefix: str,
        sampling: Sampling,
        clock: EngineClock | None,
    ) -> None:
        """Take the engine, and its model's name for error messages.

        Each call has the id `<prefix>:<number>`. The engine's own times are added to `clock`, if
        there is one.
        """
        self._model = model
        self._engine = engine
        self._prefix = prefix
        self._sampling = sampling
        self._clock = clock
        inputs = sampling_inputs(sampling, sampling.num_prompt_tokens)
        self._params = sampling_params({name: array[0] for name, array in inputs})
        self._num_prompt_tokens = sampling.num_prompt_tokens if sampling.params.looks_back else 0
        self._number = 0
        self._current: str | None = None

    @property
    def can_stream(self) -> bool:
        return True

    def run(self, call: Call) -> Generator[CallOutput]:
        self._number += 1
        call_id = f"{self._prefix}:{self._number}"
        task = self._task(call_id, call)
        outputs: SimpleQueue[TaskOutput] = SimpleQueue()
        self._current = call_id
        self._engine.submit(task, outputs.put)
        try:
            is_over = False
            while not is_over:
                unread: list[TaskOutput] = []
                while not is_over and not (call.streaming and unread):
                    output = outputs.get()
                    if output.error is not None:
                        raise _of_model(self._model, output.error)
                    unread.append(output)
                    is_over = output.is_final
                yield self._joined(unread)
        finally:
            # An abandoned call may end after the next one has begun.
            if self._current == call_id:
                self._current = None

    def abort(self) -> None:
        """Ask the engine to end the running call; it ends within a pass."""
        call_id = self._current
        if call_id is not None:
            self._engine.cancel(call_id)

    def check(self) -> None:
        """Do nothing: the engine lives as long as this process."""

    def _task(self, call_id: str, call: Call) -> Task:
        sampling, params, draft = self._sampling, self._params, call.draft
        if sampling.verifies_by_probability:
            params = replace(params, seed=round_seed(sampling.params.seed, len(call.context)))
        ids = np.asarray(draft.tokens, dtype=np.int32) if draft.tokens else NO_TOKENS
        return Task(
            request_id=call_id,
            input_ids=call.context,
            max_new_tokens=call.max_new_tokens,
            draft_ids=ids,
            draft_parents=draft.parents,
            end_id=call.end_id,
            params=params,
            num_prompt_tokens=self._num_prompt_tokens,
            wants_logits=call.returns_logits,
            verification=sampling.verification
            if sampling.verifies_by_probability and draft.tokens
            else EXACT,
            draft_logits=draft.logits,
            wants_log_probs=sampling.wants_log_probs,
            num_top_log_probs=sampling.num_top_log_probs,
            num_next=draft.num_next,
            next_depth=draft.next_depth,
            cache_salt=sampling.cache_salt,
        )

    def _joined(self, outputs: list[TaskOutput]) -> CallOutput:
        stats = outputs[-1].stats
        if stats is not None and self._clock is not None:
            self._clock.busy_s += (stats.last_token_ns - stats.arrival_ns) / 1e9
        logits = [row for output in outputs for row in output.logits]
        return CallOutput(
            tuple(token for output in outputs for token in output.tokens),
            tuple(value for output in outputs for value in output.log_probs),
            np.stack(logits) if logits else None,
            None if stats is None else stats.num_accepted_tokens,
            None if stats is None else stats.num_draft_tokens,
            outputs[-1].next_drafts,
            outputs[-1].next_parents,
            top_log_probs=tuple(each for output in outputs for each in output.top_log_probs),
        )


def _of_model(model: str, error: Exception) -> SpecdecError:
    """Return an engine's error with the model's name in it, as calls over BLS raise it."""
    kind = type(error) if isinstance(error, SpecdecError) else EngineFailedError
    return kind(f"{model}: {str(error).removeprefix(f'{kind.error_type}: ')}")
