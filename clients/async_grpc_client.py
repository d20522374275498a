"""Client of the model `specdec` over gRPC streams, for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

from specdec.clients.errors import CONNECTION_FAILED, SpecdecError
from specdec.clients.grpc_messages import AnswerReader, encode_request, error_from_call
from specdec.clients.response import Chunk, GenerationResult, collect

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from specdec.clients.request import GenerationRequest

_LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class AsyncGrpcClient:
    """A gRPC connection to one server; all coroutines of one event loop may share it.

    `url` is host:port. Each request has a stream of its own, because Triton can only cancel all
    requests of a stream. Messages may have any size. `connect_s` is the longest wait for a
    connection, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_s: float = 5.0,
        channel_options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self._url = url
        self._connect_s = connect_s
        self._channel = aio.insecure_channel(url, options=[*_LIMITS, *channel_options])
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def stream(
        self, request: GenerationRequest, model_name: str = "specdec"
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the answer chunk by chunk; closing the generator early cancels the request.

        If the request does not stream, there is one chunk. Raises SpecdecError.
        """
        message = encode_request(request, model_name, stream=bool(request.stream))
        await self._connect()
        call = self._stub.ModelStreamInfer(iter([message]))
        answer = AnswerReader(request.request_id)
        try:
            async for response in call:
                chunk = answer.read(response)
                if chunk is not None:
                    yield chunk
        except grpc.RpcError as error:
            raise error_from_call(error) from None
        finally:
            # Ends a call that the caller has abandoned; does nothing to one that has ended.
            call.cancel()
        answer.end()

    async def generate(
        self, request: GenerationRequest, model_name: str = "specdec"
    ) -> GenerationResult:
        """Wait for the whole answer. Raises SpecdecError."""
        return collect([chunk async for chunk in self.stream(request, model_name)])

    async def is_ready(self, model_name: str = "specdec", timeout_s: float = 5.0) -> bool:
        """Return whether the model takes requests; false if no answer comes in `timeout_s`."""
        question = service_pb2.ModelReadyRequest(name=model_name)
        try:
            answer = await self._stub.ModelReady(question, timeout=timeout_s)
        except grpc.RpcError:
            return False
        return bool(answer.ready)

    async def _connect(self) -> None:
        """Wait for the connection. Raises SpecdecError (`connection_failed`) if none comes."""
        if self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return
        try:
            await asyncio.wait_for(self._channel.channel_ready(), self._connect_s)
        except asyncio.TimeoutError:
            raise SpecdecError(
                f"no connection to {self._url} within {self._connect_s:g} s",
                error_type=CONNECTION_FAILED,
                status="UNAVAILABLE",
            ) from None

    async def close(self) -> None:
        """Close the connection; requests that still run on it are cancelled."""
        await self._channel.close()
