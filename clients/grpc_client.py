"""Client of the model `specdec` over gRPC streams (ModelStreamInfer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from specdec.clients.grpc_messages import AnswerReader, encode_request, error_from_call
from specdec.clients.response import Chunk, GenerationResult, collect

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from specdec.clients.request import GenerationRequest


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
        answer = AnswerReader(request.request_id)
        try:
            for response in call:
                chunk = answer.read(response)
                if chunk is not None:
                    yield chunk
        except grpc.RpcError as error:
            raise error_from_call(error) from None
        finally:
            # Ends a call that the caller has abandoned; does nothing to one that has ended.
            call.cancel()
        answer.end()

    def close(self) -> None:
        """Close the connection; requests that still run on it are cancelled."""
        self._channel.close()

    def __enter__(self) -> GrpcClient:  # noqa: PYI034 (Self is newer than 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
