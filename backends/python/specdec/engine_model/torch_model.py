"""Serve our engine as a Triton model with the tensors of NVIDIA's `tensorrtllm` backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.engine_model.reply import Reply
from specdec.engines.wire.engine_call import EngineCall, parse_call
from specdec.engines.wire.receipts import ReceiptDesk, gives_receipts
from specdec.errors import SpecdecError
from specdec.health.board import BoardHeartbeat
from specdec.settings.parameters import read_parameters
from specdec.settings.torch_engine import EngineModelSettings
from specdec.torch_engine.engine import TorchEngine
from specdec.triton_backend.log import log_unexpected
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.process_end import skip_destructors
from specdec.triton_backend.tensors import FINAL, error_response, input_arrays, texts_of


class TritonPythonModel:
    """The Triton model of one engine: passes requests to the engine and its results back."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the engine.

        Raises TritonModelException if a parameter is wrong or the checkpoint cannot be served.
        """
        skip_destructors()
        config = json.loads(args["model_config"])
        try:
            settings = read_parameters(EngineModelSettings, config)
            engine_settings = settings.engine_settings(Path(pb_utils.get_model_dir()))
            self._engine = TorchEngine(engine_settings, BoardHeartbeat(args["model_name"]))
        except SpecdecError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._outputs = frozenset(each["name"] for each in config["output"])
        self._outbox = Outbox()
        self._desk = ReceiptDesk()

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
        self._engine.close()
        self._desk.close()
        self._outbox.close()

    def _start(self, call: EngineCall, sender: Any) -> None:
        if call.stop:
            self._engine.cancel(call.task.request_id)
            sender.send(flags=FINAL)
            return
        reply = Reply(call, sender, self._outbox, self._desk)
        self._engine.submit(call.task, reply.add)
