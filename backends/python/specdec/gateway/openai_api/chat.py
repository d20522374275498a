"""Chats: POST /v1/chat/completions."""

from __future__ import annotations

import secrets
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
from specdec.gateway.openai_api.tool_use import ToolUse, tool_use_of
from specdec.gateway.tool_calls.answer_readers import AnswerReader, CallPiece


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
        """Take the request. Raises ApiError for fields that exclude each other."""
        if body.top_logprobs and not body.logprobs:
            raise bad_request(
                f"top_logprobs must be 0 without logprobs; given {body.top_logprobs}",
                "top_logprobs",
            )
        super().__init__(body, 1, (body.top_logprobs or 0) if body.logprobs else None)
        self.tool_use = tool_use_of(body)
        self.guide = _guide(body, self.tool_use)
        self._readers: dict[int, AnswerReader] = {}
        field = "response_format" if body.structured_outputs is None else "structured_outputs"
        guide_field = field if self.tool_use is None else "tools"
        self.fields = MappingProxyType(dict(self.fields) | dict.fromkeys(GUIDE_INPUTS, guide_field))

    def beside_choices(self, prompt_token_ids: Sequence[int] | None) -> dict[str, Any]:
        return {} if prompt_token_ids is None else {"prompt_token_ids": prompt_token_ids}

    def opening(self, index: int) -> dict[str, Any]:
        is_text = self.tool_use is None or self.tool_use.is_free
        return _choice(index, delta={"role": "assistant", "content": "" if is_text else None})

    def piece(self, index: int, chunk: Chunk) -> dict[str, Any] | None:
        text, calls = self._read(index, chunk.text, is_last=chunk.end is not None)
        if not (text or calls or (self.shows_tokens and chunk.token_ids)):
            return None
        delta: dict[str, Any] = {} if calls and not text else {"content": text}
        if calls:
            delta["tool_calls"] = [_call_delta(each) for each in calls]
        return _choice(index, delta=delta, **self._tokens(chunk))

    def closing(self, index: int, end: AnswerEnd) -> dict[str, Any]:
        return _choice(index, finish_reason=self._finish_reason(index, end), delta={})

    def whole(self, index: int, result: GenerationResult) -> dict[str, Any]:
        text, calls = self._read(index, result.text, is_last=True)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": _whole_calls(calls)}
        reason = self._finish_reason(index, result.end)
        return _choice(index, finish_reason=reason, message=message, **self._tokens(result))

    def _read(self, index: int, text: str, *, is_last: bool) -> tuple[str, tuple[CallPiece, ...]]:
        """Return the text and the calls in the next text of an answer."""
        if self.tool_use is None:
            return text, ()
        reader = self._readers.get(index)
        if reader is None:
            reader = self._readers[index] = self.tool_use.reader()
        piece = reader.read(text, is_last=is_last)
        return piece.text, piece.calls

    def _finish_reason(self, index: int, end: AnswerEnd) -> str | None:
        """Return OpenAI's word: `tool_calls` if the model chose to make calls and ended them."""
        reader = self._readers.get(index)
        has_calls = reader is not None and reader.num_calls > 0 and not reader.is_in_call
        is_named = self.tool_use is not None and self.tool_use.choice == "named"
        if has_calls and not is_named and end.finish_reason == "stop":
            return "tool_calls"
        return end.finish_reason

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


def _call_delta(piece: CallPiece) -> dict[str, Any]:
    """Return a part of a call as events have it; the first part has id, type and name."""
    if piece.name is None:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    return {"index": piece.index, **_call(piece.name, piece.arguments)}


def _whole_calls(pieces: Sequence[CallPiece]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.name is not None:
            calls.append(_call(piece.name, piece.arguments))
        else:
            calls[-1]["function"]["arguments"] += piece.arguments
    return calls


def _call(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


def _token(token_bytes: bytes, log_prob: float) -> dict[str, Any]:
    text = token_bytes.decode(errors="replace")
    return {"token": text, "logprob": log_prob, "bytes": list(token_bytes)}


def _choice(index: int, *, finish_reason: str | None = None, **content: Any) -> dict[str, Any]:
    return {"index": index, "logprobs": None, "finish_reason": finish_reason, **content}


def chat_requests(
    body: ChatRequest, tenant: str | None, answer_format: ChatFormat
) -> list[GenerationRequest]:
    """Return the requests to the model `specdec` for a chat. Raises ApiError."""
    prediction = None if body.prediction is None else joined(body.prediction.content)
    use = answer_format.tool_use
    return requests_of(
        body,
        [{"messages": [each.for_template() for each in body.messages]}],
        form=answer_format,
        max_tokens=_max_tokens(body),
        tenant=tenant,
        guide=answer_format.guide,
        stop_words=use.stop_words() if use is not None else (),
        tools=None if use is None else use.for_template(),
        prediction=prediction,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
    )


def _guide(body: ChatRequest, use: ToolUse | None) -> GuideFields | None:
    """Return the guide of `response_format` or of the tools.

    Raises ApiError if both or `structured_outputs` too constrain the answer.
    """
    guide = guide_of_format(body.response_format)
    if guide is not None and body.structured_outputs is not None:
        raise bad_request(
            "structured_outputs must be left out with a response_format that constrains",
            "structured_outputs",
        )
    if use is None:
        return guide
    for name, given in (
        ("response_format", guide),
        ("structured_outputs", body.structured_outputs),
    ):
        if given is not None:
            raise bad_request(
                f"{name} must not constrain an answer that may have calls; with tools, set "
                "tool_choice 'none'",
                name,
            )
    return use.guide()


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
