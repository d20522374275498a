"""The parts of an answer's body that chats and completions have in common."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from specdec import __version__
from specdec.clients.response import AnswerEnd, Chunk, GenerationResult
from specdec.gateway.openai_api.schema import GenerationFields


class AnswerFormat(ABC):
    """The form of the answers to one API request."""

    prefix: str
    """Beginning of the answer's id."""
    whole_object: str
    """The field `object` of an answer in one body."""
    chunk_object: str
    """The field `object` of an event."""
    fields: Mapping[str, str]
    """Fields of the API for inputs of the model `specdec` that have another name."""

    def __init__(self, body: GenerationFields, num_prompts: int, num_log_probs: int | None) -> None:
        """Take the request, its number of prompts, and how many log-probabilities it asks for.

        With a `num_log_probs` of 0 it asks for those of the answer's tokens, with k also for those
        of the k likeliest ones, with None for none.
        """
        self.answer_id = f"{self.prefix}-{secrets.token_hex(12)}"
        self.num_log_probs = num_log_probs
        self.has_token_ids = bool(body.return_token_ids)
        self._created = int(time.time())
        self._model = body.model
        self.num_prompts = num_prompts

    @property
    def shows_tokens(self) -> bool:
        """Whether tokens are shown even before their text is complete."""
        return self.num_log_probs is not None or self.has_token_ids

    def beside_choices(self, prompt_token_ids: Sequence[int] | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the fields of an answer, or of its first event, beside the choices."""
        return {}

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
        num_per_prompt = len(ends) // self.num_prompts
        num_prompt = sum(end.num_input_tokens or 0 for end in ends[::num_per_prompt])
        usage: dict[str, Any] = usage_of(
            num_prompt, sum(end.num_output_tokens or 0 for end in ends)
        )
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


def usage_of(num_prompt: int, num_answer: int) -> dict[str, int]:
    """Return numbers of tokens as OpenAI's API has them."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_answer,
        "total_tokens": num_prompt + num_answer,
    }
