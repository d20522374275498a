"""The client's request: read from tensors, checked once, frozen.

Pure: arrays in, a dataclass or an InvalidRequestError out. Every message names
the limit and the value given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.errors import InvalidRequestError
from specdec.serving.drafter_names import AUTO, check_drafter

Arrays = Mapping[str, npt.NDArray[Any]]

MAX_TASK_LENGTH = 64
"""Characters of a task or tenant label."""

MAX_BIAS = 100.0
"""Of a logit, as OpenAI has it: enough to ban a token or to force it."""

VERIFICATIONS = ("exact", "rejection", "block", "typical")

PROMPT_INPUTS = ("text_input", "messages", "input_ids")


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a client asks of `specdec`; the fields are the inputs of its config.pbtxt."""

    text_input: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    input_ids: tuple[int, ...] | None = None
    max_tokens: int = 256
    stream: bool = False
    sampling: SamplingParams = GREEDY
    """Without seed and bad words, which come as `seed` and `bad_words`."""
    seed: int | None = None
    bad_words: tuple[str, ...] = ()
    return_log_probs: bool = False
    stop_words: tuple[str, ...] = ()
    end_id: int | None = None
    exclude_input_in_output: bool = True
    num_draft_tokens: int | None = None
    drafter: str = AUTO
    verification: str | None = None
    prediction: str = ""
    task: str = "default"
    tenant: str | None = None
    deadline_ms: int | None = None
    return_perf_metrics: bool = False


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What this deployment allows."""

    vocab_size: int
    max_draft_len: int
    drafters: tuple[str, ...]


def parse_request(arrays: Arrays, limits: RequestLimits) -> GenerationRequest:
    """Checks everything that does not need the tokenizer."""
    read = _Reader(arrays)
    given = [name for name in PROMPT_INPUTS if name in arrays]
    if len(given) != 1:
        raise InvalidRequestError(
            f"exactly one of {', '.join(PROMPT_INPUTS)} must be given; "
            f"given: {', '.join(given) or 'none'}"
        )
    drafter = check_drafter(read.text("drafter", AUTO), limits.drafters)
    num_draft_tokens = read.integer("num_draft_tokens", None, 0, limits.max_draft_len)
    max_tokens = read.integer("max_tokens", 256, 1, 2**31 - 1)
    return GenerationRequest(
        text_input=read.prompt_text(),
        messages=read.messages(),
        input_ids=read.prompt_ids(limits.vocab_size),
        max_tokens=max_tokens,
        stream=read.flag("stream", False),
        sampling=_sampling(read, max_tokens, limits.vocab_size),
        seed=read.integer("seed", read.integer("random_seed", None, 0, 2**64 - 1), 0, 2**64 - 1),
        bad_words=read.texts("bad_words"),
        return_log_probs=read.flag("return_log_probs", False),
        stop_words=read.texts("stop_words"),
        end_id=read.integer("end_id", None, 0, limits.vocab_size - 1),
        exclude_input_in_output=read.flag("exclude_input_in_output", True),
        num_draft_tokens=num_draft_tokens,
        drafter=drafter,
        verification=_verification(read),
        prediction=read.text("prediction", ""),
        task=read.label("task", "default"),
        tenant=read.label("tenant", "") or None,
        deadline_ms=read.integer("deadline_ms", None, 1, 2**31 - 1),
        return_perf_metrics=read.flag("return_perf_metrics", False),
    )


def _sampling(read: _Reader, max_tokens: int, vocab_size: int) -> SamplingParams:
    return SamplingParams(
        temperature=read.number("temperature", 0.0, 0.0, 10.0),
        top_k=read.integer("top_k", 0, 0, 2**31 - 1),
        top_p=read.number("top_p", 1.0, 0.0, 1.0, exclusive_minimum=True),
        min_p=read.number("min_p", 0.0, 0.0, 1.0),
        repetition_penalty=read.number(
            "repetition_penalty", 1.0, 0.0, math.inf, exclusive_minimum=True
        ),
        presence_penalty=read.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=read.number("frequency_penalty", 0.0, -2.0, 2.0),
        min_tokens=read.integer("min_tokens", 0, 0, max_tokens),
        logit_bias=read.logit_bias(vocab_size),
    )


def _verification(read: _Reader) -> str | None:
    name = read.text("verification", "")
    if name not in ("", *VERIFICATIONS):
        raise InvalidRequestError(
            f"verification must be one of {', '.join(VERIFICATIONS)}; given {name!r}"
        )
    return name or None


class _Reader:
    """Typed access to the arrays; Triton has already checked types and shapes."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def _scalar(self, name: str) -> Any:
        return self._arrays[name].ravel()[0] if name in self._arrays else None

    def flag(self, name: str, default: bool) -> bool:
        value = self._scalar(name)
        return default if value is None else bool(value)

    def integer(self, name: str, default: Any, minimum: int, maximum: int) -> Any:
        value = self._scalar(name)
        if value is None:
            return default
        if not minimum <= int(value) <= maximum:
            raise InvalidRequestError(
                f"{name} must be an integer from {minimum} to {maximum}; given {int(value)}"
            )
        return int(value)

    def number(
        self,
        name: str,
        default: float,
        minimum: float,
        maximum: float,
        *,
        exclusive_minimum: bool = False,
    ) -> float:
        value = self._scalar(name)
        if value is None:
            return default
        number = float(value)
        above = number > minimum if exclusive_minimum else number >= minimum
        if not (math.isfinite(number) and above and number <= maximum):
            bounds = f"{'above' if exclusive_minimum else 'from'} {minimum:g} to {maximum:g}"
            raise InvalidRequestError(f"{name} must be a finite number {bounds}; given {number:g}")
        return number

    def text(self, name: str, default: str) -> str:
        value = self._scalar(name)
        return default if value is None else self._decode(name, value)

    def texts(self, name: str) -> tuple[str, ...]:
        if name not in self._arrays:
            return ()
        return tuple(
            text for value in self._arrays[name].ravel() if (text := self._decode(name, value))
        )

    def label(self, name: str, default: str) -> str:
        text = self.text(name, default)
        if len(text) > MAX_TASK_LENGTH:
            raise InvalidRequestError(
                f"{name} may have {MAX_TASK_LENGTH} characters; given {len(text)}"
            )
        return text or default

    def prompt_text(self) -> str | None:
        if "text_input" not in self._arrays:
            return None
        text = self.text("text_input", "")
        if not text:
            raise InvalidRequestError("text_input must have at least 1 character; given 0")
        return text

    def messages(self) -> tuple[Mapping[str, Any], ...] | None:
        if "messages" not in self._arrays:
            return None
        try:
            parsed = json.loads(self.text("messages", ""))
            json.dumps(parsed, ensure_ascii=False).encode()  # "\ud83d" alone is JSON, but no text
        # Not only JSONDecodeError: nesting and long numbers have limits of their own.
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(
                f"messages must be a JSON list of messages: {error}"
            ) from None
        if not isinstance(parsed, list) or not parsed:
            raise InvalidRequestError("messages must be a JSON list with at least 1 message")
        for index, message in enumerate(parsed):
            if not isinstance(message, dict) or not all(
                isinstance(message.get(key), str) for key in ("role", "content")
            ):
                raise InvalidRequestError(
                    f"messages[{index}] must be an object with the texts 'role' and 'content'"
                )
        return tuple(parsed)

    def logit_bias(self, vocab_size: int) -> tuple[tuple[int, float], ...]:
        """OpenAI's form: a JSON object of token ids and numbers."""
        try:
            parsed = json.loads(self.text("logit_bias", "") or "{}")
            pairs = [(int(token), float(bias)) for token, bias in parsed.items()]
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise InvalidRequestError(
                "logit_bias must be a JSON object of token ids and numbers"
            ) from None
        for token, bias in pairs:
            if not 0 <= token < vocab_size:
                raise InvalidRequestError(
                    f"logit_bias is for tokens from 0 to {vocab_size - 1}; given {token}"
                )
            if not -MAX_BIAS <= bias <= MAX_BIAS:
                raise InvalidRequestError(
                    f"logit_bias must lie from {-MAX_BIAS:g} to {MAX_BIAS:g}; given {bias:g}"
                )
        return tuple(sorted(pairs))

    def prompt_ids(self, vocab_size: int) -> tuple[int, ...] | None:
        if "input_ids" not in self._arrays:
            return None
        ids = self._arrays["input_ids"].ravel()
        if not ids.size:
            raise InvalidRequestError("input_ids must have at least 1 token; given 0")
        outside = ids[(ids < 0) | (ids >= vocab_size)]
        if outside.size:
            raise InvalidRequestError(
                f"input_ids must lie from 0 to {vocab_size - 1}; given {int(outside[0])}"
            )
        return tuple(ids.tolist())

    @staticmethod
    def _decode(name: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise InvalidRequestError(f"{name} must be UTF-8 text") from None
