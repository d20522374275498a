"""A double of Triton's gRPC service with the model `specdec`, whose answers a test decides."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from typing_extensions import Self

from specdec.clients.request import INPUTS

Inputs = dict[str, Any]
"""The inputs of a request by name: scalars as values, lists as lists."""

Step = dict[str, list[Any]] | str | tuple[Any, str] | float | threading.Event
"""A response's outputs, an error's text, a code and text that end the call, seconds to wait, or an
event to wait for."""

Answer = Callable[[Inputs], Iterable[Step]]
"""Function from a request's inputs to the steps of its answer."""

_CODES = {"BOOL": "?", "INT32": "i", "UINT64": "Q", "FP32": "f"}
_DATATYPES = {str: "BYTES", bool: "BOOL", int: "INT32", float: "FP32"}


def said(text: str, ids: list[int], **final: Any) -> dict[str, list[Any]]:
    """Return the outputs of one response; `final` are those that only the last one has."""
    outputs = {"text_output": [text], "output_ids": ids, "output_sources": [0] * len(ids)}
    return outputs | {name: [value] for name, value in final.items()}


class TritonStream(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The service, on a free port; to be used in a `with` statement."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.is_ready = True
        self.asked: list[tuple[str, Inputs]] = []
        """Model and inputs of all requests, in order of their arrival."""
        self.num_open = 0
        """Calls that have not ended."""
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(64))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Answer whether the model is ready."""
        return service_pb2.ModelReadyResponse(ready=self.is_ready)

    def ModelStreamInfer(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        """Answer the one request of a stream."""
        request = next(request_iterator)
        inputs = {
            spec.name: _unpack(spec.datatype, raw, is_list=INPUTS[spec.name].is_list)
            for spec, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        with self._lock:
            self.asked.append((request.model_name, inputs))
            self.num_open += 1
        has_ended = threading.Event()
        context.add_callback(lambda: self._ended(has_ended))
        for step in self.answer(inputs):
            if isinstance(step, dict):
                response = _response(request.id, step)
                yield service_pb2.ModelStreamInferResponse(infer_response=response)
            elif isinstance(step, str):
                yield service_pb2.ModelStreamInferResponse(error_message=step)
            elif isinstance(step, tuple):
                context.abort(*step)
            elif isinstance(step, threading.Event):
                while not (step.wait(0.01) or has_ended.is_set()):
                    pass
            else:
                time.sleep(step)

    def _ended(self, has_ended: threading.Event) -> None:
        has_ended.set()
        with self._lock:
            self.num_open -= 1


def _response(request_id: str, outputs: dict[str, list[Any]]) -> Any:
    message = service_pb2.ModelInferResponse(id=request_id)
    for name, values in outputs.items():
        datatype = _DATATYPES[type(values[0])] if values else "INT32"
        message.outputs.add(name=name, datatype=datatype, shape=[1, len(values)])
        message.raw_output_contents.append(_pack(datatype, values))
    return message


def _pack(datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        texts = [value.encode() for value in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return struct.pack(f"<{len(values)}{_CODES[datatype]}", *values)


def _unpack(datatype: str, raw: bytes, *, is_list: bool) -> Any:
    if datatype == "BYTES":
        values, start = [], 0
        while start < len(raw):
            end = start + 4 + int.from_bytes(raw[start : start + 4], "little")
            values.append(raw[start + 4 : end].decode())
            start = end
    else:
        code = _CODES[datatype]
        values = list(struct.unpack(f"<{len(raw) // struct.calcsize('<' + code)}{code}", raw))
    return values if is_list else values[0]
