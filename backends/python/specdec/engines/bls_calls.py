"""Calls of engine models over BLS, with the tensors of NVIDIA's `tensorrtllm` backend."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from functools import partial
from typing import Any

from specdec.engines.bls_requests import BlsRequests, output, tensor
from specdec.engines.call_tensors import STOP_INPUTS, CallTensors, busy_s_of
from specdec.engines.calls import Call, CallOutput
from specdec.engines.protocol import EngineClock
from specdec.engines.wire import contract
from specdec.engines.wire.sampling_inputs import Sampling


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
        self._tensors = CallTensors(sampling, asks_for_times=clock is not None)
        prefix = f"{request_id}:{label}"
        self._requests = BlsRequests(model, prefix, _stop, contract.REQUIRED_OUTPUTS)

    @property
    def can_stream(self) -> bool:
        # Engines that take our inputs wait for receipts (receipts.py).
        return self._sampling.takes_our_inputs

    def run(self, call: Call) -> Generator[CallOutput]:
        """Run a call and yield the part of its result that each response brings.

        Raise InvalidRequestError or UnsupportedError if the engine blames the request, else
        EngineFailedError.
        """
        inputs = [tensor(*each) for each in self._tensors.inputs(call)]
        outputs = self._tensors.outputs(call)
        if call.streaming and self.can_stream:
            outputs.append(contract.RECEIPT_ADDRESS)
        with closing(self._requests.responses(inputs, outputs)) as responses:
            for response in responses:
                part = self._tensors.output(partial(output, response))
                if part is None:  # A stream ends with an empty response.
                    continue
                if self._clock is not None:
                    self._clock.busy_s += busy_s_of(partial(output, response))
                yield part

    def abort(self) -> None:
        """Ask the engine to end the running call; do nothing without one."""
        self._requests.abort()

    def check(self) -> None:
        """Raise EngineLostError if the engine's process has died; may wait for a slow engine."""
        self._requests.check()


def _stop() -> list[Any]:
    return [tensor(*each) for each in STOP_INPUTS]
