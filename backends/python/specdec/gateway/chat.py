"""Chats: POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from specdec.clients.request import GenerationRequest
from specdec.clients.response import AnswerEnd, Chunk, GenerationResult
from specdec.gateway.answer_format import ALL_THAT_FITS, AnswerFormat, requests_of
from specdec.gateway.errors import bad_request
from specdec.gateway.schema import ChatRequest, joined

class ChatFormat(AnswerFormat):
    """The form of the answers to a chat."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any]:
        return _choice(index, delta={"role": "assistant", "content": ""})

    def piece(self, index: int, chunk: Chunk) -> dict[str, Any] | None:
        return _choice(index, delta={"content": chunk.text}) if chunk.text else None

    def closing(self, index: int, end: AnswerEnd) -> dict[str, Any]:
        return _choice(index, end.finish_reason, delta={})

    def whole(self, index: int, result: GenerationResult) -> dict[str, Any]:
        message = {"role": "assistant", "content": result.text, "refusal": None}
        return _choice(index, result.end.finish_reason, message=message)


def _choice(index: int, finish_reason: str | None = None, **content: Any) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}


def chat_requests(
    body: ChatRequest, tenant: str | None, answer_id: str
) -> list[GenerationRequest]:
    """Return the requests to the model `specdec` for a chat. Raises ApiError."""
    messages = [
        {"role": each.role, "content": joined(each.content)}
        | ({"name": each.name} if each.name is not None else {})
        for each in body.messages
    ]
    if None not in {body.max_tokens, body.max_completion_tokens} and (
        body.max_tokens != body.max_completion_tokens
    ):
        raise bad_request(
            "max_tokens is the old name of max_completion_tokens; given "
            f"{body.max_tokens} and {body.max_completion_tokens}",
            "max_tokens",
        )
    given = [each for each in (body.max_completion_tokens, body.max_tokens) if each is not None]
    prediction = None if body.prediction is None else joined(body.prediction.content)
    return requests_of(
        body,
        [{"messages": messages}],
        max_tokens=given[0] if given else ALL_THAT_FITS,
        tenant=tenant,
        answer_id=answer_id,
        prediction=prediction,
    )
