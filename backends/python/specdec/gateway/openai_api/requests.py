"""Build the requests to the model `specdec` from a request of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specdec.clients.request import GenerationRequest
from specdec.gateway.openai_api.answer_format import AnswerFormat
from specdec.gateway.openai_api.errors import bad_request
from specdec.gateway.openai_api.guides import GuideFields
from specdec.gateway.openai_api.schema import GenerationFields

ALL_THAT_FITS = -1
"""`max_tokens` of the model `specdec` for as many tokens as the context has room for."""

NUM_SEEDS = 2**64
"""Seeds are unsigned on the server; a negative one counts back from here."""

_SAME_NAMES = (
    "presence_penalty",
    "frequency_penalty",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "skip_special_tokens",
    "drafter",
    "num_draft_tokens",
    "verification",
    "task",
    "deadline_ms",
)
"""Fields that have the same name and meaning in the model `specdec`."""


def requests_of(
    body: GenerationFields,
    prompts: Sequence[Mapping[str, Any]],
    *,
    form: AnswerFormat,
    max_tokens: int,
    tenant: str | None,
    guide: GuideFields | None = None,
    stop_words: Sequence[str] = (),
    **rest: Any,
) -> list[GenerationRequest]:
    """Return the requests to the model, one for each answer; answer i of a prompt has seed + i.

    Each of `prompts` has the fields of GenerationRequest that hold one prompt. `rest` are fields
    of all requests, and `form` is that of their answers. `stop_words` are added to those of the
    request. OpenAI's default temperature is 1.
    """
    num_each, guide = body.n or 1, guide or _vllm_guide(body)
    common: dict[str, Any] = {
        "stream": bool(body.stream),
        "max_tokens": max_tokens,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k == -1 else body.top_k,
        "stop_words": [*_words(body.stop), *stop_words] or None,
        "bad_words": body.bad_words or None,
        "logit_bias": body.logit_bias or None,
        "stop_token_ids": body.stop_token_ids or None,
        "tenant": tenant,
        "return_perf_metrics": True,
        "return_log_probs": None if form.num_log_probs is None else True,
        "num_top_log_probs": form.num_log_probs or None,
        "return_prompt_token_ids": form.has_token_ids or None,
        **{name: getattr(body, name) for name in _SAME_NAMES},
        **({} if guide is None else asdict(guide)),
        **rest,
    }
    return [
        GenerationRequest(
            **common,
            **prompt,
            seed=None if body.seed is None else (body.seed + number) % NUM_SEEDS,
            request_id=f"{form.answer_id}-{index * num_each + number}",
        )
        for index, prompt in enumerate(prompts)
        for number in range(num_each)
    ]


def _words(stop: str | list[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else stop or []


def _vllm_guide(body: GenerationFields) -> GuideFields | None:
    return None if body.structured_outputs is None else body.structured_outputs.fields()


def checked_max_tokens(value: int, field: str) -> int:
    """Return the given number of tokens. Raises ApiError with this field if it is less than 1."""
    if value < 1:
        raise bad_request(f"{field} must be at least 1; given {value}", field)
    return value
