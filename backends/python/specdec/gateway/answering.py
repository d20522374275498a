"""Answer an API request by requests to the model `specdec`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from http import HTTPStatus

from fastapi import Request
from starlette.responses import JSONResponse, Response

from specdec.clients.async_grpc_client import AsyncGrpcClient
from specdec.clients.errors import SpecdecError
from specdec.clients.request import GenerationRequest
from specdec.clients.response import AnswerEnd, Chunk, collect
from specdec.gateway.generation import chunks_of
from specdec.gateway.openai_api.answer_events import AnswerEvents, event
from specdec.gateway.openai_api.answer_format import AnswerFormat
from specdec.gateway.openai_api.errors import bad_request, from_server
from specdec.gateway.openai_api.schema import StreamOptions
from specdec.gateway.settings import GatewayLimits
from specdec.gateway.transport.access import NO_CLIENT, RequestRecord
from specdec.gateway.transport.asgi import RECORD
from specdec.gateway.transport.delivery import EventStream, while_connected

Chunks = AsyncGenerator[tuple[int, Chunk], None]


class Answering:
    """Answers API requests in one body, or as server-sent events."""

    def __init__(self, client: AsyncGrpcClient, limits: GatewayLimits) -> None:
        self._client = client
        self._limits = limits

    def check_number(self, num_answers: int) -> None:
        """Raise ApiError if a request asks for too many answers."""
        if num_answers > self._limits.max_choices:
            raise bad_request(
                f"prompts times n must be at most {self._limits.max_choices}; given {num_answers}",
                "n",
            )

    async def answer(
        self,
        http: Request,
        model: str,
        requests: Sequence[GenerationRequest],
        form: AnswerFormat,
        options: StreamOptions | None,
    ) -> Response:
        """Return the response to an API request; `model` is Triton's name.

        Raises ApiError for an error that comes before the first token.
        """
        record: RequestRecord = http.scope[RECORD]
        chunks = chunks_of(self._client, model, requests)
        if not requests[0].stream:
            whole = self._whole(chunks, len(requests), form, record)
            answer = await while_connected(whole, http.receive, record)
            return answer or Response(status_code=NO_CLIENT)
        # The first chunk comes before the status, so that an error before it is a status too.
        first = await while_connected(_first(chunks, form), http.receive, record)
        if first is None:
            await chunks.aclose()
            return Response(status_code=NO_CLIENT)
        record.first_token()
        events = AnswerEvents(form, len(requests), options or StreamOptions())
        return EventStream(_events(first, chunks, events, record, form), record)

    async def _whole(
        self, chunks: Chunks, num_answers: int, form: AnswerFormat, record: RequestRecord
    ) -> Response:
        parts: list[list[Chunk]] = [[] for _ in range(num_answers)]
        try:
            async with aclosing(chunks):
                async for index, chunk in chunks:
                    parts[index].append(chunk)
            results = [collect(each) for each in parts]
        except SpecdecError as error:
            raise from_server(error, form.fields) from None
        ends = [each.end for each in results]
        _note(record, ends)
        choices = [form.whole(index, each) for index, each in enumerate(results)]
        body = form.body(
            choices,
            is_chunk=False,
            usage=form.usage(ends),
            metrics=form.metrics(ends),
            **form.beside_choices(results[0].prompt_token_ids),
        )
        return JSONResponse(body, HTTPStatus.OK)


async def _first(chunks: Chunks, form: AnswerFormat) -> tuple[int, Chunk]:
    try:
        return await anext(chunks)
    except SpecdecError as error:
        raise from_server(error, form.fields) from None


async def _events(
    first: tuple[int, Chunk],
    chunks: Chunks,
    events: AnswerEvents,
    record: RequestRecord,
    form: AnswerFormat,
) -> AsyncGenerator[bytes, None]:
    """Yield the events of each chunk, and then the last ones; an error ends the stream."""
    try:
        async with aclosing(chunks):
            yield events.events_of(*first)
            async for index, chunk in chunks:
                if found := events.events_of(index, chunk):
                    yield found
    except SpecdecError as error:
        refusal = from_server(error, form.fields)
        record.error_code = refusal.code
        yield event(refusal.body)
        return
    _note(record, events.ends)
    yield events.last()


def _note(record: RequestRecord, ends: Sequence[AnswerEnd]) -> None:
    record.labels["prompt_tokens"] = ends[0].num_input_tokens
    record.labels["completion_tokens"] = sum(end.num_output_tokens or 0 for end in ends)
