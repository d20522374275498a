"""Serve an engine as a Triton model with the tensors of NVIDIA's `tensorrtllm` backend."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import triton_python_backend_utils as pb_utils

from specdec.engine_model.occupancy_gauges import OccupancyGauges
from specdec.engine_model.reply import Reply
from specdec.engine_model.row_replies import RowReplies
from specdec.engine_model.stream_pace import StreamPace
from specdec.engines.wire.engine_call import EngineCall, parse_call
from specdec.engines.wire.receipts import ReceiptDesk, gives_receipts
from specdec.errors import SpecdecError
from specdec.health.board import BoardHeartbeat, Heartbeat
from specdec.health.occupancy import Occupancy, OccupancyWatch
from specdec.torch_engine.task import Receiver, TaskOutput
from specdec.triton_backend.log import log_unexpected
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.process_end import skip_destructors
from specdec.triton_backend.tensors import FINAL, error_response, input_arrays, texts_of


class ServedEngine(Protocol):
    """The interface of an engine that a Triton model serves; thread-safe."""

    def submit(self, call: EngineCall, receive: Receiver) -> None:
        """Begin the call's task; `receive` is called with each of its outputs, in order.

        Raises SpecdecError for a task that the engine cannot run.
        """

    def cancel(self, request_id: str) -> None:
        """End the task with this id; an unknown id is no error."""

    def occupancy(self) -> Occupancy | None:
        """Return how full the engine was at most since the last call; None if it cannot tell."""

    def close(self) -> None:
        """End all tasks and the engine."""


LoadEngine = Callable[[Mapping[str, Any], Path, Heartbeat], ServedEngine]
"""Function that loads an engine from Triton's model configuration, the folder of the model's
version, and the heartbeat of its process. It raises SpecdecError if the engine cannot be served."""


class EngineModel:
    """The Triton model of one engine: passes requests to the engine and its results back."""

    load: LoadEngine
    """Function that loads the engine; each subclass sets it."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the engine.

        Raises TritonModelException if a parameter is wrong or the engine cannot be served.
        """
        skip_destructors()
        config = json.loads(args["model_config"])
        version = Path(pb_utils.get_model_dir())
        try:
            self._engine = type(self).load(config, version, BoardHeartbeat(args["model_name"]))
        except SpecdecError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._outputs = frozenset(each["name"] for each in config["output"])
        self._outbox = Outbox()
        self._desk = ReceiptDesk()
        self._pace = StreamPace()
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self._gauges = OccupancyGauges(labels)
        self._watch = OccupancyWatch(self._engine.occupancy, self._gauges.show)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                outputs = frozenset(request.requested_output_names())
                call = parse_call(
                    texts_of(request)[0],
                    input_arrays(request),
                    outputs,
                    gives_receipts=gives_receipts(outputs, self._outputs),
                )
                self._start(call, sender)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                log_unexpected(error)
                sender.send(error_response(error), flags=FINAL)

    def finalize(self) -> None:
        self._watch.close()
        self._gauges.close()
        self._engine.close()
        self._desk.close()
        self._outbox.close()

    def _start(self, call: EngineCall, sender: Any) -> None:
        if call.stop:
            self._engine.cancel(call.task.request_id)
            sender.send(flags=FINAL)
            return
        if call.rows:
            self._start_rows(call, sender)
            return
        reply = Reply(call, sender, self._outbox, self._desk, self._pace)
        self._engine.submit(call, reply.add)

    def _start_rows(self, call: EngineCall, sender: Any) -> None:
        replies = RowReplies(len(call.rows), sender, self._outbox)
        for row, task in enumerate(call.rows):
            receive = replies.receiver(row)
            try:
                self._engine.submit(replace(call, task=task), receive)
            except SpecdecError as error:
                receive(TaskOutput((), error=error))
