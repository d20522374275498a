"""Completions of texts or tokens: POST /v1/completions."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import Any

from specdec.clients.request import GenerationRequest
from specdec.clients.response import AnswerEnd, Chunk, GenerationResult
from specdec.gateway.openai_api.answer_format import AnswerFormat
from specdec.gateway.openai_api.errors import bad_request
from specdec.gateway.openai_api.requests import checked_max_tokens, requests_of
from specdec.gateway.openai_api.schema import CompletionRequest

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for completions."""


class CompletionFormat(AnswerFormat):
    """The form of the answers to a completion."""

    prefix = "cmpl"
    whole_object = chunk_object = "text_completion"
    fields = MappingProxyType(
        {
            "stop_words": "stop",
            "num_top_log_probs": "logprobs",
            "text_input": "prompt",
            "input_ids": "prompt",
            "guided_decoding_guide_type": "structured_outputs",
            "guided_decoding_guide": "structured_outputs",
        }
    )

    def __init__(self, body: CompletionRequest) -> None:
        """Take the request. Raises ApiError without a prompt, or for `echo` with `logprobs`."""
        if body.echo and body.logprobs is not None:
            raise bad_request("echo with logprobs is not supported", "echo", "unsupported")
        self.prompts = _prompts_of(body)
        """The fields of GenerationRequest that hold each prompt."""
        super().__init__(body, len(self.prompts), body.logprobs)
        self._num_characters: Counter[int] = Counter()
        """Characters of the tokens so far, by the answer's index."""

    def opening(self, index: int) -> None:
        """Return None: the events of completions begin with text."""

    def piece(self, index: int, chunk: Chunk) -> dict[str, Any] | None:
        has_tokens = bool(chunk.token_ids or chunk.prompt_token_ids)
        if not (chunk.text or (self.shows_tokens and has_tokens)):
            return None
        return _choice(index, chunk.text, **self._tokens(index, chunk))

    def closing(self, index: int, end: AnswerEnd) -> dict[str, Any]:
        return _choice(index, "", finish_reason=end.finish_reason)

    def whole(self, index: int, result: GenerationResult) -> dict[str, Any]:
        reason, tokens = result.end.finish_reason, self._tokens(index, result)
        return _choice(index, result.text, finish_reason=reason, **tokens)

    def _tokens(self, index: int, part: Chunk | GenerationResult) -> dict[str, Any]:
        """Return the fields about tokens that the request asks for."""
        fields: dict[str, Any] = {}
        if self.num_log_probs is not None:
            texts = [each.decode(errors="replace") for each in part.token_bytes or ()]
            offsets = []
            for text in texts:
                offsets.append(self._num_characters[index])
                self._num_characters[index] += len(text)
            fields["logprobs"] = {
                "tokens": texts,
                "token_logprobs": part.log_probs or (),
                "top_logprobs": _top_log_probs(part),
                "text_offset": offsets,
            }
        if self.has_token_ids:
            fields |= {"token_ids": part.token_ids, "token_sources": part.sources}
            if part.prompt_token_ids is not None:
                fields["prompt_token_ids"] = part.prompt_token_ids
        return fields


def _choice(
    index: int, text: str, *, finish_reason: str | None = None, **rest: Any
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason, **rest}


def _top_log_probs(part: Chunk | GenerationResult) -> list[dict[str, float]] | None:
    """Return the likeliest tokens and the token itself at each position; None without any."""
    if not part.top_tokens:
        return None
    own = zip(part.token_bytes or (), part.log_probs or (), strict=True)
    return [
        {_key(each.token_bytes): each.log_prob for each in top} | {_key(token): log_prob}
        for top, (token, log_prob) in zip(part.top_tokens, own, strict=True)
    ]


def _key(token_bytes: bytes) -> str:
    """Return a token's text, or its bytes as OpenAI writes them if it is no whole text."""
    try:
        return token_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)


def _prompts_of(body: CompletionRequest) -> list[dict[str, Any]]:
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
    body: CompletionRequest, tenant: str | None, form: CompletionFormat
) -> list[GenerationRequest]:
    """Return the requests to the model `specdec` for a completion. Raises ApiError."""
    return requests_of(
        body,
        form.prompts,
        form=form,
        max_tokens=DEFAULT_MAX_TOKENS
        if body.max_tokens is None
        else checked_max_tokens(body.max_tokens, "max_tokens"),
        tenant=tenant,
        exclude_input_in_output=not body.echo,
    )
