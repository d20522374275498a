"""Make Triton responses from the outputs of a running request (fillTritonResponse [V])."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from specdec.engines.wire.engine_outputs import log_prob_outputs, perf_outputs
from specdec.torch_engine.task import TaskOutput
from specdec.triton_backend.outbox import Outbox
from tests.doubles.tensorrtllm.built import BuiltEngine
from tests.doubles.tensorrtllm.call import BackendCall

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Running:
    """One request, from the executor's queue to its last response."""

    def __init__(
        self,
        call: BackendCall,
        engine: BuiltEngine,
        number: int,
        request: Any,
        outbox: Outbox,
        on_end: Callable[[], None],
        num_padding: int,
    ) -> None:
        self._call = call
        self._engine = engine
        self._number = number
        self._sender = request.get_response_sender()
        self._asked = frozenset(request.requested_output_names())
        self._outbox = outbox
        self._on_end = on_end
        self._num_padding = num_padding
        self._lock = threading.Lock()
        self._is_over = False
        # Responses of a stream hold only new tokens, so the prompt is never repeated there.
        echoes = not (call.excludes_input or call.streaming)
        self._tokens: list[int] = call.task.input_ids.tolist() if echoes else []
        self._log_probs: list[float] = []
        self._logits: list[npt.NDArray[np.float32]] = []

    def is_cancelled(self) -> bool:
        """Return whether the client has gone; false once the last response is on its way.

        Triton must not be asked after that.
        """
        with self._lock:
            return not self._is_over and bool(self._sender.is_cancelled())

    def add(self, output: TaskOutput) -> None:
        """Take the engine's next output, on the engine's thread, and queue a response if due."""
        if self._is_over:
            return
        self._tokens += output.tokens
        self._log_probs += output.log_probs
        self._logits += [self._own_logits(row) for row in output.logits]
        if output.error is not None:
            self._fail(f"due to the following error: {output.error}")
        elif self._call.streaming or output.is_final:
            self._respond(output)

    def _respond(self, output: TaskOutput) -> None:
        for name in ("output_ids", "sequence_length"):
            if name not in self._asked:
                self._fail(
                    f"due to the following error: {name} tensor must be present in list of "
                    "output tensors"
                )
                return
        outputs = self._outputs(output)
        tensors = [
            pb_utils.Tensor(name, array[None])
            for name, array in outputs.items()
            if name in self._asked
        ]
        self._send(pb_utils.InferenceResponse(tensors), is_final=output.is_final)

    def _fail(self, words: str) -> None:
        text = f"Executor failed process requestId {self._number} {words}"
        error = pb_utils.TritonError(text, pb_utils.TritonError.INTERNAL)
        self._send(pb_utils.InferenceResponse(error=error), is_final=True)

    def _send(self, response: Any, *, is_final: bool) -> None:
        if is_final:
            with self._lock:
                self._is_over = True
            self._on_end()
        self._outbox.put(lambda: self._sender.send(response, flags=FINAL if is_final else 0))

    def _outputs(self, output: TaskOutput) -> dict[str, npt.NDArray[Any]]:
        """Return the output arrays without the batch dimension, and forget what they hold."""
        padded = [*self._tokens, *[-1] * self._num_padding]
        outputs: dict[str, npt.NDArray[Any]] = {
            "output_ids": np.asarray([padded], dtype=np.int32),
            "sequence_length": np.asarray([len(self._tokens)], dtype=np.int32),
        }
        if self._call.task.wants_log_probs:
            outputs |= log_prob_outputs(self._log_probs)
        if self._logits:
            outputs["generation_logits"] = np.stack(self._logits)[None]
        if output.stats is not None and self._call.returns_perf_metrics:
            outputs |= perf_outputs(output.stats)
        self._tokens, self._log_probs, self._logits = [], [], []
        return outputs

    def _own_logits(self, drawn_from: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the model's logits [columns] before the temperature; 0 in the padding columns."""
        row = np.zeros(self._engine.num_columns, dtype=np.float32)
        row[: len(drawn_from)] = drawn_from * np.float32(self._call.temperature)
        return row
