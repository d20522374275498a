"""Completions of texts or tokens: POST /v1/completions."""

from __future__ import annotations

from typing import Any

from specdec.clients.request import GenerationRequest
from specdec.clients.response import AnswerEnd, Chunk, GenerationResult
from specdec.gateway.answer_format import AnswerFormat, requests_of
from specdec.gateway.errors import bad_request
from specdec.gateway.schema import CompletionRequest

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for completions."""


class CompletionFormat(AnswerFormat):
    """The form of the answers to a completion."""

    prefix = "cmpl"
    whole_object = chunk_object = "text_completion"

    def opening(self, index: int) -> None:
        """Return None: the events of completions begin with text."""

    def piece(self, index: int, chunk: Chunk) -> dict[str, Any] | None:
        return _choice(index, chunk.text) if chunk.text else None

    def closing(self, index: int, end: AnswerEnd) -> dict[str, Any]:
        return _choice(index, "", end.finish_reason)

    def whole(self, index: int, result: GenerationResult) -> dict[str, Any]:
        return _choice(index, result.text, result.end.finish_reason)


def _choice(index: int, text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def prompts_of(body: CompletionRequest) -> list[dict[str, Any]]:
    """Return the fields of GenerationRequest that hold each prompt. Raises ApiError for none."""
    given = body.prompt
    if isinstance(given, str):
        return [{"text_input": given}]
    if not given:
        raise bad_request("prompt must have at least 1 text or token", "prompt")
    if isinstance(given[0], int):
        return [{"input_ids": given}]
    return [{"text_input" if isinstance(each, str) else "input_ids": each} for each in given]


def completion_requests(
    body: CompletionRequest, tenant: str | None, answer_id: str
) -> list[GenerationRequest]:
    """Return the requests to the model `specdec` for a completion. Raises ApiError."""
    return requests_of(
        body,
        prompts_of(body),
        max_tokens=DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
        tenant=tenant,
        answer_id=answer_id,
        exclude_input_in_output=not body.echo,
    )
