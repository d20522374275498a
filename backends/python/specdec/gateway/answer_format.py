"""The parts of an answer's body that chats and completions have in common."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from specdec import __version__
from specdec.clients.request import GenerationRequest
from specdec.clients.response import AnswerEnd, Chunk, GenerationResult
from specdec.gateway.errors import bad_request
from specdec.gateway.schema import GenerationFields

ALL_THAT_FITS = -1
"""`max_tokens` of the model `specdec` for as many tokens as the context has room for."""

MAX_UINT64 = 2**64
"""Seeds are unsigned on the server; a negative one counts back from here."""


class AnswerFormat(ABC):
    """The form of the answers to one API request."""

    prefix: str
    """Beginning of the answer's id."""
    whole_object: str
    """The field `object` of an answer in one body."""
    chunk_object: str
    """The field `object` of an event."""

    def __init__(self, model: str, num_prompts: int) -> None:
        """Take the model's name as the client gave it, and the number of prompts."""
        self.answer_id = f"{self.prefix}-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._model = model
        self._num_prompts = num_prompts

    @abstractmethod
    def opening(self, index: int) -> dict[str, Any] | None:
        """Return the choice of an event before the first piece of an answer; None for none."""

    @abstractmethod
    def piece(self, index: int, chunk: Chunk) -> dict[str, Any] | None:
        """Return the choice of an event; None if the chunk has nothing to show."""

    @abstractmethod
    def closing(self, index: int, end: AnswerEnd) -> dict[str, Any]:
        """Return the choice of the event that has an answer's `finish_reason`."""

    @abstractmethod
    def whole(self, index: int, result: GenerationResult) -> dict[str, Any]:
        """Return the choice of an answer in one body."""

    def body(
        self, choices: Sequence[Mapping[str, Any]], *, is_chunk: bool, **rest: Any
    ) -> dict[str, Any]:
        """Return a body or an event with these choices."""
        return {
            "id": self.answer_id,
            "object": self.chunk_object if is_chunk else self.whole_object,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": f"specdec-{__version__}",
            "choices": list(choices),
            **rest,
        }

    def usage(self, ends: Sequence[AnswerEnd]) -> dict[str, Any]:
        """Return the numbers of tokens; a prompt counts once, however many answers it has."""
        num_per_prompt = len(ends) // self._num_prompts
        num_prompt = sum(end.num_input_tokens or 0 for end in ends[::num_per_prompt])
        num_answer = sum(end.num_output_tokens or 0 for end in ends)
        usage: dict[str, Any] = {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_answer,
            "total_tokens": num_prompt + num_answer,
        }
        if any(end.accepted_prediction_tokens is not None for end in ends):
            usage["completion_tokens_details"] = {
                name: sum(getattr(end, name) or 0 for end in ends)
                for name in ("accepted_prediction_tokens", "rejected_prediction_tokens")
            }
        return usage

    def metrics(self, ends: Sequence[AnswerEnd]) -> dict[str, Any]:
        """Return the acceptance in vLLM's form; null for more than one answer, as there."""
        only = ends[0].speculative_decoding if len(ends) == 1 else None
        return {"speculative_decoding": only}


def requests_of(
    body: GenerationFields,
    prompts: Sequence[Mapping[str, Any]],
    *,
    max_tokens: int,
    tenant: str | None,
    answer_id: str,
    **rest: Any,
) -> list[GenerationRequest]:
    """Return the requests to the model, one for each answer; answer i of a prompt has seed + i.

    Each of `prompts` has the fields of GenerationRequest that hold one prompt. `rest` are fields
    of all requests. OpenAI's default temperature is 1. Raises ApiError.
    """
    if max_tokens < 1 and max_tokens != ALL_THAT_FITS:
        raise bad_request(f"max_tokens must be at least 1; given {max_tokens}", "max_tokens")
    num_each = body.n or 1
    common: dict[str, Any] = {
        "stream": bool(body.stream),
        "max_tokens": max_tokens,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k == -1 else body.top_k,
        "stop_words": [body.stop] if isinstance(body.stop, str) else body.stop or None,
        "bad_words": body.bad_words or None,
        "logit_bias": body.logit_bias or None,
        "tenant": tenant,
        "return_perf_metrics": True,
        **{name: getattr(body, name) for name in _SAME_NAMES},
        **rest,
    }
    return [
        GenerationRequest(
            **common,
            **prompt,
            seed=None if body.seed is None else (body.seed + number) % MAX_UINT64,
            request_id=f"{answer_id}-{index * num_each + number}",
        )
        for index, prompt in enumerate(prompts)
        for number in range(num_each)
    ]


_SAME_NAMES = (
    "presence_penalty",
    "frequency_penalty",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "drafter",
    "num_draft_tokens",
    "verification",
    "task",
    "deadline_ms",
)
"""Fields that have the same name and meaning in the model `specdec`."""
