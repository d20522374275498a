"""Turn requests into gRPC messages of KServe, and messages into chunks and errors."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tritonclient.grpc import service_pb2

from specdec.clients.errors import (
    BROKEN_ANSWER,
    CLIENT_TIMEOUT,
    CONNECTION_FAILED,
    WITHOUT_TYPE,
    SpecdecError,
)
from specdec.clients.response import Chunk, chunk_from_outputs

if TYPE_CHECKING:
    from specdec.clients.request import GenerationRequest, WireTensor

_STRUCT_CODES = {"BOOL": "?", "INT32": "i", "UINT64": "Q", "FP32": "f"}
_BROKEN = ("connect", "socket", "recvmsg", "broken pipe", "goaway", "keepalive")
"""Words in gRPC's message for a connection that broke or was not made. Triton's own errors have the
code UNAVAILABLE too."""
_TRITON_CODES = {"INVALID_ARGUMENT": "INVALID_ARG", "UNIMPLEMENTED": "UNSUPPORTED"}


def encode_request(request: GenerationRequest, model_name: str, *, stream: bool) -> Any:
    """Return a request as a ModelInferRequest message.

    Raises SpecdecError (`client_invalid_request`) for a value that its type cannot hold.
    """
    message = service_pb2.ModelInferRequest(model_name=model_name, id=request.request_id)
    # Asks for an empty final response, so that the end of a decoupled answer is seen.
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    for tensor in request.tensors(stream=stream):
        message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        message.raw_input_contents.append(_pack(tensor))
    return message


class AnswerReader:
    """Reads the messages of one stream in turn.

    After an error the rest is read without effect, because a stream must not be cancelled then.
    """

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._error_text = ""
        self._is_complete = False

    def read(self, message: Any) -> Chunk | None:
        """Return the chunk in a message; None if it has none. Raises SpecdecError."""
        self._error_text = self._error_text or message.error_message
        if self._error_text:
            return None
        chunk = decode_response(message.infer_response, self._request_id)
        if chunk is not None:
            self._is_complete = chunk.end is not None
        return chunk

    def end(self) -> None:
        """Take the end of the stream. Raises SpecdecError after an error or a missing end."""
        if self._error_text:
            raise SpecdecError.from_server(self._error_text)
        if not self._is_complete:
            raise SpecdecError(
                "the stream ended before the answer was complete", error_type=BROKEN_ANSWER
            )


def _pack(tensor: WireTensor) -> bytes:
    if tensor.datatype == "BYTES":
        texts = [str(value).encode() for value in tensor.values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return struct.pack(f"<{len(tensor.values)}{_STRUCT_CODES[tensor.datatype]}", *tensor.values)


def decode_response(response: Any, request_id: str) -> Chunk | None:
    """Return the chunk in a response; None for the empty one that ends the stream.

    Raises SpecdecError (`client_broken_answer`) for another request's response.
    """
    if response.id != request_id:
        message = f"asked as {request_id!r}, answered as {response.id!r}"
        raise SpecdecError(message, error_type=BROKEN_ANSWER)
    if not response.outputs:
        return None
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    return chunk_from_outputs({spec.name: _unpack(spec.datatype, raw) for spec, raw in pairs})


def _unpack(datatype: str, raw: bytes) -> list[Any]:
    if datatype != "BYTES":
        code = _STRUCT_CODES[datatype]
        return list(struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw))
    values, start = [], 0
    while start < len(raw):
        end = start + 4 + int.from_bytes(raw[start : start + 4], "little")
        values.append(raw[start + 4 : end].decode())
        start = end
    return values


def error_from_call(error: Any) -> SpecdecError:
    """Return the error with which a gRPC call has ended."""
    code, details = error.code().name, error.details() or ""
    if code == "DEADLINE_EXCEEDED":
        return SpecdecError(details, error_type=CLIENT_TIMEOUT, status=code)
    found = SpecdecError.from_server(details, _TRITON_CODES.get(code, code))
    is_untyped = code == "UNAVAILABLE" and found.error_type == WITHOUT_TYPE
    if is_untyped and any(word in details.lower() for word in _BROKEN):
        return SpecdecError(details, error_type=CONNECTION_FAILED, status=code)
    return found
