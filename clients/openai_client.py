"""Client of the model `specdec` behind OpenAI's API, as the gateway serves it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.exceptions import HTTPError

from specdec.clients.errors import BROKEN_ANSWER, INVALID_REQUEST, SpecdecError
from specdec.clients.http_client import events_of, parse_object
from specdec.clients.response import AnswerEnd, Chunk, GenerationResult, collect
from specdec.clients.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from specdec.clients.request import GenerationRequest

_SAME_NAMES = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "min_tokens"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty", "bad_words"),
        *("stop_token_ids", "ignore_eos", "skip_special_tokens"),
        *("add_generation_prompt", "continue_final_message"),
        *("drafter", "num_draft_tokens", "verification", "task", "deadline_ms"),
    }
)
"""Inputs that are fields of the API with the same name."""

_OTHER_NAMES = {"text_input": "prompt", "input_ids": "prompt", "stop_words": "stop"}
_GUIDE = ("guided_decoding_guide_type", "guided_decoding_guide")
_CONSTRAINTS = {
    "json_schema": "json",
    "regex": "regex",
    "ebnf_grammar": "grammar",
    "structural_tag": "structural_tag",
}
"""Names of vLLM's constraints, by `guided_decoding_guide_type`."""
_JSON = ("messages", "logit_bias")
"""Inputs that hold JSON as a text."""

_DEFAULTS = {"temperature": 0.0, "max_tokens": 256}
"""Defaults of the model, which differ from those of OpenAI's API."""


class OpenAiClient:
    """A pool of HTTP connections to one gateway; threads may share it.

    `url` is the address without `/v1`. `timeout_s` is the default limit of a whole request, in
    seconds; None sets no limit. `api_key` may be empty.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:9000",
        *,
        model_name: str = "specdec",
        timeout_s: float | None = None,
        api_key: str = "",
        num_connections: int = 64,
    ) -> None:
        self._base = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
        self._model_name = model_name
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        # No retries, because a request must not be generated twice.
        self._pool = urllib3.PoolManager(maxsize=num_connections, retries=False)

    def generate(
        self, request: GenerationRequest, *, timeout_s: float | None = None
    ) -> GenerationResult:
        """Wait for the whole answer. Raises SpecdecError."""
        return collect(self.stream(request, timeout_s=timeout_s))

    def stream(
        self, request: GenerationRequest, *, timeout_s: float | None = None
    ) -> Generator[Chunk, None, None]:
        """Yield the answer chunk by chunk; closing the generator early cancels the request.

        Raises SpecdecError; also `client_invalid_request` for an input that the API lacks.
        """
        limit = TimeLimit(self._timeout_s if timeout_s is None else timeout_s)
        path, body = self._body(request)
        with limit.explained_errors():
            response = self._pool.request(
                "POST",
                f"{self._base}/v1/{path}",
                body=json.dumps(body, ensure_ascii=False).encode(),
                headers=self._headers,
                timeout=limit.until_response(),
                preload_content=False,
            )
        is_complete = False
        try:
            with limit.while_reading(response):
                if response.status != 200:
                    raise _error_of(parse_object(response.data))
                reason = ""
                for data in events_of(response):
                    if data.strip() == b"[DONE]":
                        is_complete = True
                        continue
                    fields = parse_object(data)
                    if "error" in fields:
                        raise _error_of(fields)
                    for choice in fields["choices"]:
                        reason = choice["finish_reason"] or reason
                        if chunk := _chunk(choice):
                            yield chunk
                    if "metrics" in fields:
                        yield Chunk("", (), (), end=_end(reason, fields))
        finally:
            response.close()
        if not is_complete:
            raise SpecdecError(
                "the stream ended before the answer was complete", error_type=BROKEN_ANSWER
            )

    def is_ready(self, timeout_s: float = 5.0) -> bool:
        """Return whether an answer can come; false if the gateway does not say so in time."""
        try:
            response = self._pool.request("GET", f"{self._base}/health/ready", timeout=timeout_s)
        except HTTPError:
            return False
        return response.status == 200

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def __enter__(self) -> OpenAiClient:  # noqa: PYI034 (Self is newer than 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _body(self, request: GenerationRequest) -> tuple[str, dict[str, Any]]:
        """Return path and body of a streamed request. Raises SpecdecError."""
        body: dict[str, Any] = {"model": self._model_name, "stream": True, **_DEFAULTS}
        body["stream_options"] = {"include_usage": True}
        body["return_token_ids"] = True
        for tensor in request.tensors(stream=True):
            name, values = tensor.name, list(tensor.values) if tensor.is_list else tensor.values[0]
            if name in _SAME_NAMES or name in _OTHER_NAMES:
                body[_OTHER_NAMES.get(name, name)] = values
            elif name in _JSON:
                body[name] = json.loads(str(values))
            elif name in _GUIDE:
                continue
            elif name == "prediction":
                body[name] = {"type": "content", "content": values}
            elif name not in {"stream", "return_perf_metrics"}:
                message = f"this client cannot send {name}"
                raise SpecdecError(message, error_type=INVALID_REQUEST, status="INVALID_ARG")
        if request.guided_decoding_guide_type:
            body["structured_outputs"] = _constraint(request)
        return "chat/completions" if "messages" in body else "completions", body


def _constraint(request: GenerationRequest) -> dict[str, Any]:
    """Return a request's guide in vLLM's form. Raises SpecdecError for one that the API lacks."""
    kind = str(request.guided_decoding_guide_type)
    if kind not in _CONSTRAINTS:
        message = f"this client cannot send the guide {kind}"
        raise SpecdecError(message, error_type=INVALID_REQUEST, status="INVALID_ARG")
    return {_CONSTRAINTS[kind]: request.guided_decoding_guide or ""}


def _chunk(choice: Mapping[str, Any]) -> Chunk | None:
    """Return the chunk in an event's choice; None if it has only the role."""
    text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
    tokens, sources = choice.get("token_ids", ()), choice.get("token_sources", ())
    return Chunk(text, tuple(tokens), tuple(sources)) if text or tokens else None


def _end(finish_reason: str, fields: Mapping[str, Any]) -> AnswerEnd:
    """Return the end of an answer from the event with the numbers of tokens."""
    usage, statistics = fields.get("usage") or {}, fields["metrics"]["speculative_decoding"] or {}
    details = usage.get("completion_tokens_details") or {}
    return AnswerEnd(
        finish_reason,
        num_input_tokens=usage.get("prompt_tokens"),
        num_output_tokens=usage.get("completion_tokens"),
        total_draft_tokens=statistics.get("num_draft_tokens"),
        total_accepted_draft_tokens=statistics.get("num_accepted_draft_tokens"),
        acceptance_rate=statistics.get("draft_acceptance_rate"),
        accepted_prediction_tokens=details.get("accepted_prediction_tokens"),
        rejected_prediction_tokens=details.get("rejected_prediction_tokens"),
        speculative_decoding=statistics or None,
    )


def _error_of(fields: Mapping[str, Any]) -> SpecdecError:
    """Return the error in OpenAI's error object."""
    error = fields.get("error")
    if not isinstance(error, dict):
        return SpecdecError(f"no error object: {fields!r:.200}", error_type=BROKEN_ANSWER)
    return SpecdecError(str(error.get("message")), error_type=str(error.get("code")))
