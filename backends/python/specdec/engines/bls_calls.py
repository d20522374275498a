"""Calls of engine models over BLS, with the tensors of NVIDIA's `tensorrtllm` backend."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

import numpy as np

from specdec.engines.bls_requests import BlsRequests, output, tensor, values
from specdec.engines.calls import Call, CallOutput
from specdec.engines.protocol import EngineClock
from specdec.engines.wire import contract
from specdec.engines.wire.draft_logits import drawn_from, fitted
from specdec.engines.wire.sampling_inputs import Sampling, sampling_inputs


class BlsCalls:
    """The calls of one request to one engine model of this server; an `EngineCalls` (calls.py).

    Each call has the id `<request_id>:<label>:<number>`. With a `clock`, calls ask for the engine's
    own times and add them to it.
    """

    def __init__(
        self,
        model: str,
        request_id: str,
        label: str,
        sampling: Sampling,
        clock: EngineClock | None = None,
    ) -> None:
        self._clock = clock
        self._sampling = sampling
        self._outputs = list(contract.REQUIRED_OUTPUTS)
        if sampling.wants_log_probs:
            self._outputs.append(contract.OUTPUT_LOG_PROBS)
        if clock is not None:
            self._outputs += [contract.ARRIVAL_TIME_NS, contract.LAST_TOKEN_TIME_NS]
        prefix = f"{request_id}:{label}"
        self._requests = BlsRequests(model, prefix, _stop, contract.REQUIRED_OUTPUTS)

    @property
    def can_stream(self) -> bool:
        # Only our own engines share the sampler, and these wait for receipts (receipts.py).
        return self._sampling.has_shared_sampler

    def run(self, call: Call) -> Generator[CallOutput]:
        """Run a call and yield the part of its result that each response brings.

        Raise InvalidRequestError or UnsupportedError if the engine blames the request, else
        EngineFailedError.
        """
        inputs, outputs = self._inputs(call), self._outputs_of(call)
        with closing(self._requests.responses(inputs, outputs)) as responses:
            for response in responses:
                said = self._read(response)
                if said is not None:  # A stream ends with an empty response.
                    yield said

    def abort(self) -> None:
        """Ask the engine to end the running call; do nothing without one."""
        self._requests.abort()

    def check(self) -> None:
        """Raise EngineLostError if the engine's process has died; may wait for a slow engine."""
        self._requests.check()

    def _counts(self, call: Call) -> bool:
        """Return whether the engine must report how many draft tokens it accepted.

        It must if the tokens alone do not show it. The target's own token may equal the draft token
        that it replaces, or a token on a branch that was not verified.
        """
        verifies_by_probability = (
            self._sampling.verifies_by_probability and self._sampling.has_shared_sampler
        )
        return bool(call.draft.tokens) and (verifies_by_probability or bool(call.draft.parents))

    def _outputs_of(self, call: Call) -> list[str]:
        outputs = [*self._outputs]
        if self._counts(call):
            outputs += [contract.TOTAL_ACCEPTED_DRAFT_TOKENS, contract.TOTAL_DRAFT_TOKENS]
        if call.returns_logits:
            outputs.append(contract.GENERATION_LOGITS)
        if call.streaming and self.can_stream:
            outputs.append(contract.RECEIPT_ADDRESS)
        if call.draft.num_next:
            outputs.append(contract.NEXT_DRAFT_IDS)
            if call.draft.next_depth is not None:
                outputs.append(contract.NEXT_DRAFT_PARENTS)
        return outputs

    def _inputs(self, call: Call) -> list[Any]:
        context, draft = call.context, call.draft
        inputs = [
            tensor(contract.INPUT_IDS, context[None]),
            _int32(contract.INPUT_LENGTHS, len(context)),
            _int32(contract.REQUEST_OUTPUT_LEN, call.max_new_tokens),
            _bool(contract.EXCLUDE_INPUT_IN_OUTPUT, True),
        ]
        inputs += [tensor(*each) for each in sampling_inputs(self._sampling, len(context))]
        for name, number in (
            (contract.END_ID, call.end_id),
            (contract.NUM_NEXT_DRAFTS, draft.num_next),
            (contract.NEXT_DRAFT_DEPTH, draft.next_depth),
        ):
            if number is not None:
                inputs.append(_int32(name, number))
        for name, is_wanted in (
            (contract.RETURN_PERF_METRICS, self._clock is not None or self._counts(call)),
            (contract.STREAMING, call.streaming),
            (contract.RETURN_GENERATION_LOGITS, call.returns_logits),
        ):
            if is_wanted:
                inputs.append(_bool(name, True))
        if draft.tokens:  # The C++ backend refuses an empty tensor.
            inputs.append(
                tensor(contract.DRAFT_INPUT_IDS, np.asarray([draft.tokens], dtype=np.int32))
            )
            if draft.parents:
                parents = np.asarray([draft.parents], dtype=np.int32)
                inputs.append(tensor(contract.DRAFT_PARENTS, parents))
            if draft.logits is not None:
                logits = fitted(draft.logits, self._sampling)
                inputs.append(tensor(contract.DRAFT_LOGITS, logits[None]))
            if self._sampling.verifies_by_probability and self._sampling.has_shared_sampler:
                rule = self._sampling.verification.encode()
                inputs.append(tensor(contract.VERIFICATION, np.asarray([[rule]], dtype=np.object_)))
        return inputs

    def _read(self, response: Any) -> CallOutput | None:
        ids, lengths = (output(response, name) for name in contract.REQUIRED_OUTPUTS)
        if ids is None or lengths is None:
            return None
        self._advance_clock(response)
        tokens = tuple(ids.ravel()[: int(lengths.ravel()[0])].tolist())
        logits = output(response, contract.GENERATION_LOGITS)
        return CallOutput(
            tokens,
            values(response, contract.OUTPUT_LOG_PROBS),
            None if logits is None else drawn_from(logits, self._sampling),
            next(iter(values(response, contract.TOTAL_ACCEPTED_DRAFT_TOKENS)), None),
            next(iter(values(response, contract.TOTAL_DRAFT_TOKENS)), None),
            values(response, contract.NEXT_DRAFT_IDS),
            values(response, contract.NEXT_DRAFT_PARENTS),
        )

    def _advance_clock(self, response: Any) -> None:
        if self._clock is None:
            return
        arrival = values(response, contract.ARRIVAL_TIME_NS)
        last = values(response, contract.LAST_TOKEN_TIME_NS)
        if arrival and last:
            self._clock.busy_s += (last[0] - arrival[0]) / 1e9


def _stop() -> list[Any]:
    return [
        tensor(contract.INPUT_IDS, np.ones((1, 1), dtype=np.int32)),
        _int32(contract.INPUT_LENGTHS, 0),
        _int32(contract.REQUEST_OUTPUT_LEN, 0),
        _bool(contract.STOP, True),
    ]


def _int32(name: str, value: int) -> Any:
    return tensor(name, np.asarray([[value]], dtype=np.int32))


def _bool(name: str, value: bool) -> Any:
    return tensor(name, np.asarray([[value]], dtype=np.bool_))
