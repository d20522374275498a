"""Chats: POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from specdec.clients.request import GenerationRequest
from specdec.clients.response import AnswerEnd, Chunk, GenerationResult
from specdec.gateway.openai_api.answer_format import AnswerFormat
from specdec.gateway.openai_api.errors import bad_request
from specdec.gateway.openai_api.guides import GUIDE_INPUTS, GuideFields, guide_of_format
from specdec.gateway.openai_api.requests import ALL_THAT_FITS, checked_max_tokens, requests_of
from specdec.gateway.openai_api.schema import ChatRequest, joined


class ChatFormat(AnswerFormat):
    """The form of the answers to a chat."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    fields = MappingProxyType(
        {
            "stop_words": "stop",
            "num_top_log_probs": "top_logprobs",
            "prompt": "messages",
        }
    )

    def __init__(self, body: ChatRequest) -> None:
        """Take the request. Raises ApiError for `top_logprobs` without `logprobs`."""
        if body.top_logprobs and not body.logprobs:
            raise bad_request(
                f"top_logprobs must be 0 without logprobs; given {body.top_logprobs}",
                "top_logprobs",
            )
        super().__init__(body, 1, (body.top_logprobs or 0) if body.logprobs else None)
        form = "response_format" if body.structured_outputs is None else "structured_outputs"
        self.fields = MappingProxyType(dict(self.fields) | dict.fromkeys(GUIDE_INPUTS, form))

    def beside_choices(self, prompt_token_ids: Sequence[int] | None) -> dict[str, Any]:
        return {} if prompt_token_ids is None else {"prompt_token_ids": prompt_token_ids}

    def opening(self, index: int) -> dict[str, Any]:
        return _choice(index, delta={"role": "assistant", "content": ""})

    def piece(self, index: int, chunk: Chunk) -> dict[str, Any] | None:
        if not (chunk.text or (self.shows_tokens and chunk.token_ids)):
            return None
        return _choice(index, delta={"content": chunk.text}, **self._tokens(chunk))

    def closing(self, index: int, end: AnswerEnd) -> dict[str, Any]:
        return _choice(index, finish_reason=end.finish_reason, delta={})

    def whole(self, index: int, result: GenerationResult) -> dict[str, Any]:
        message = {"role": "assistant", "content": result.text, "refusal": None}
        reason = result.end.finish_reason
        return _choice(index, finish_reason=reason, message=message, **self._tokens(result))

    def _tokens(self, part: Chunk | GenerationResult) -> dict[str, Any]:
        """Return the fields about tokens that the request asks for."""
        fields: dict[str, Any] = {}
        if self.num_log_probs is not None:
            log_probs = zip(part.token_bytes or (), part.log_probs or (), strict=True)
            content = [_token(*each) | {"top_logprobs": []} for each in log_probs]
            for token, top in zip(content, part.top_tokens, strict=False):
                token["top_logprobs"] = [_token(each.token_bytes, each.log_prob) for each in top]
            fields["logprobs"] = {"content": content, "refusal": None}
        if self.has_token_ids:
            fields |= {"token_ids": part.token_ids, "token_sources": part.sources}
        return fields


def _token(token_bytes: bytes, log_prob: float) -> dict[str, Any]:
    text = token_bytes.decode(errors="replace")
    return {"token": text, "logprob": log_prob, "bytes": list(token_bytes)}


def _choice(index: int, *, finish_reason: str | None = None, **content: Any) -> dict[str, Any]:
    return {"index": index, "logprobs": None, "finish_reason": finish_reason, **content}


def chat_requests(
    body: ChatRequest, tenant: str | None, form: ChatFormat
) -> list[GenerationRequest]:
    """Return the requests to the model `specdec` for a chat. Raises ApiError."""
    messages = [
        {"role": each.role, "content": joined(each.content)}
        | ({"name": each.name} if each.name is not None else {})
        for each in body.messages
    ]
    prediction = None if body.prediction is None else joined(body.prediction.content)
    return requests_of(
        body,
        [{"messages": messages}],
        form=form,
        max_tokens=_max_tokens(body),
        tenant=tenant,
        guide=_guide(body),
        prediction=prediction,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
    )


def _guide(body: ChatRequest) -> GuideFields | None:
    """Return the guide of `response_format`. Raises ApiError if there is one of vLLM's too."""
    guide = guide_of_format(body.response_format)
    if guide is not None and body.structured_outputs is not None:
        raise bad_request(
            "structured_outputs must be left out with a response_format that constrains",
            "structured_outputs",
        )
    return guide


def _max_tokens(body: ChatRequest) -> int:
    """Return the most tokens of an answer. Raises ApiError if it is given twice."""
    old, new = body.max_tokens, body.max_completion_tokens
    if None not in {old, new} and old != new:
        raise bad_request(
            f"max_tokens is the old name of max_completion_tokens; given {old} and {new}",
            "max_tokens",
        )
    if new is not None:
        return checked_max_tokens(new, "max_completion_tokens")
    return ALL_THAT_FITS if old is None else checked_max_tokens(old, "max_tokens")
