"""Client of the model `specdec` over gRPC streams (ModelStreamInfer)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from specdec.clients.errors import BROKEN_ANSWER, CLIENT_TIMEOUT, CONNECTION_FAILED, SpecdecError
from specdec.clients.response import Chunk, GenerationResult, chunk_from_outputs, collect

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from specdec.clients.request import GenerationRequest, WireTensor

_STRUCT_CODES = {"BOOL": "?", "INT32": "i", "UINT64": "Q", "FP32": "f"}
_TRITON_CODES = {"INVALID_ARGUMENT": "INVALID_ARG", "UNIMPLEMENTED": "UNSUPPORTED"}


class GrpcClient:
    """A gRPC connection to one server; threads may share it.

    `url` is host:port. `timeout_s` is the default limit of a whole request, in seconds; None sets
    no limit. Each request has a stream of its own, because Triton can only cancel all requests of
    a stream. Messages may have any size.
    """

    def __init__(
        self,
        url: str = "127.0.0.1:8001",
        *,
        model_name: str = "specdec",
        timeout_s: float | None = None,
        channel_options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self._model_name = model_name
        self._timeout_s = timeout_s
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(url, options=[*limits, *channel_options])
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def stream(
        self, request: GenerationRequest, *, timeout_s: float | None = None
    ) -> Generator[Chunk, None, None]:
        """Yield the answer chunk by chunk; closing the generator early cancels the request.

        Raises SpecdecError.
        """
        return self._run(request, stream=True, timeout_s=timeout_s)

    def generate(
        self, request: GenerationRequest, *, timeout_s: float | None = None
    ) -> GenerationResult:
        """Wait for the whole answer, sent by the server in one response.

        Raises SpecdecError.
        """
        return collect(self._run(request, stream=False, timeout_s=timeout_s))

    def is_ready(self, timeout_s: float = 5.0) -> bool:
        """Return whether the model takes requests; false if no answer comes in `timeout_s` seconds.

        This also opens the connection.
        """
        question = service_pb2.ModelReadyRequest(name=self._model_name)
        try:
            return bool(self._stub.ModelReady(question, timeout=timeout_s).ready)
        except grpc.RpcError:
            return False

    def _run(
        self, request: GenerationRequest, *, stream: bool, timeout_s: float | None
    ) -> Generator[Chunk, None, None]:
        message = encode_request(request, self._model_name, stream=stream)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        # The header triton_grpc_error is not sent: with it, an error on a stream can end
        # tritonserver 2.51.0 (use after free, fixed in server PR 8708). So errors come as text, and
        # a stream with an error is read to its end instead of cancelled.
        call = self._stub.ModelStreamInfer(iter([message]), timeout=limit_s)
        is_complete = False
        error_text = ""
        try:
            for response in call:
                error_text = error_text or response.error_message
                if error_text:
                    continue
                chunk = _decode(response.infer_response, request.request_id)
                if chunk is not None:
                    is_complete = chunk.end is not None
                    yield chunk
        except grpc.RpcError as error:
            raise _error_from_call(error) from None
        finally:
            # Ends a call that the caller has abandoned; does nothing to one that has ended.
            call.cancel()
        if error_text:
            raise SpecdecError.from_server(error_text)
        if not is_complete:
            raise SpecdecError(
                "the stream ended before the answer was complete", error_type=BROKEN_ANSWER
            )

    def close(self) -> None:
        """Close the connection; requests that still run on it are cancelled."""
        self._channel.close()

    def __enter__(self) -> GrpcClient:  # noqa: PYI034 (Self is newer than 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def _pack(tensor: WireTensor) -> bytes:
    if tensor.datatype == "BYTES":
        texts = [str(value).encode() for value in tensor.values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return struct.pack(f"<{len(tensor.values)}{_STRUCT_CODES[tensor.datatype]}", *tensor.values)


def _decode(response: Any, request_id: str) -> Chunk | None:
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


def _error_from_call(error: Any) -> SpecdecError:
    code, details = error.code().name, error.details() or ""
    if code == "DEADLINE_EXCEEDED":
        return SpecdecError(details, error_type=CLIENT_TIMEOUT, status=code)
    if code == "UNAVAILABLE" and "connect" in details.split(":")[0].lower():
        return SpecdecError(details, error_type=CONNECTION_FAILED, status=code)
    return SpecdecError.from_server(details, _TRITON_CODES.get(code, code))
