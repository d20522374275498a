"""Run the requests to the model `specdec` that one API request needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from specdec.clients.async_grpc_client import AsyncGrpcClient
from specdec.clients.request import GenerationRequest
from specdec.clients.response import Chunk


async def chunks_of(
    client: AsyncGrpcClient, model: str, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[tuple[int, Chunk], None]:
    """Yield the chunks of all answers as they come, each with the index of its request.

    Closing the generator cancels all requests. Raises SpecdecError; the other requests end then.
    """
    streams = [client.stream(each, model) for each in requests]
    try:
        if len(streams) == 1:
            async for chunk in streams[0]:
                yield 0, chunk
            return
        waiting = {asyncio.ensure_future(anext(each)): n for n, each in enumerate(streams)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    index = waiting.pop(task)
                    try:
                        chunk = task.result()
                    except StopAsyncIteration:
                        continue
                    waiting[asyncio.ensure_future(anext(streams[index]))] = index
                    yield index, chunk
        finally:
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting)
    finally:
        for each in streams:
            await each.aclose()
