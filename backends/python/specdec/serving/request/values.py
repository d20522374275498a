"""Read single values from a request's arrays and check each against its limits.

Triton has already checked types and shapes. Every error names the limit and the value given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from specdec.errors import InvalidRequestError

Arrays = Mapping[str, npt.NDArray[Any]]
"""Inputs by name, without the batch dimension."""

MAX_LABEL_LENGTH = 64
"""Most characters of a task or tenant label."""

JSON_GROWTH = 6
"""Most bytes of JSON for one byte of text: a byte may be written as an escape such as \\u000a."""

MAX_BIAS_BYTES = 40
"""Most bytes of JSON for one token and its bias; leaves room for spaces and long numbers."""

MAX_WORDS = 256
MAX_WORD_BYTES = 256
"""Most words in `stop_words` and in `bad_words`, and most bytes of each. Each word costs time for
every token that is drawn."""

MAX_BIAS = 100.0
"""Largest absolute logit bias, as in OpenAI's API; it is enough to ban or force a token."""


class Reader:
    """Typed access to the inputs of one request.

    For an absent input, a method returns the given default; without one, None or an empty tuple.
    Methods raise InvalidRequestError for values outside their limits. A text may have at most
    `max_text_bytes` bytes.
    """

    def __init__(self, arrays: Arrays, max_text_bytes: int = 2**31 - 1) -> None:
        self._arrays = arrays
        self._max_text_bytes = max_text_bytes

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

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        value = self._scalar(name)
        if value is None:
            return default
        number = float(value)
        if not (math.isfinite(number) and minimum <= number <= maximum):
            raise InvalidRequestError(
                f"{name} must be a finite number from {minimum:g} to {maximum:g}; given {number:g}"
            )
        return number

    def text(self, name: str, default: str, max_bytes: int | None = None) -> str:
        value = self._scalar(name)
        if value is not None:
            self._check_size(name, len(value), max_bytes or self._max_text_bytes)
        return default if value is None else self._decode(name, value)

    def words(self, name: str) -> tuple[str, ...]:
        if name not in self._arrays:
            return ()
        values = self._arrays[name].ravel()
        if len(values) > MAX_WORDS:
            raise InvalidRequestError(f"{name} may have {MAX_WORDS} texts; given {len(values)}")
        for index, value in enumerate(values):
            self._check_size(f"{name}[{index}]", len(value), MAX_WORD_BYTES)
        return tuple(text for value in values if (text := self._decode(name, value)))

    def tokens(self, name: str, vocab_size: int) -> tuple[int, ...]:
        """Return up to MAX_WORDS token ids, without duplicates."""
        if name not in self._arrays:
            return ()
        values = self._arrays[name].ravel()
        if len(values) > MAX_WORDS:
            raise InvalidRequestError(f"{name} may have {MAX_WORDS} tokens; given {len(values)}")
        for index, value in enumerate(values.tolist()):
            if not 0 <= value < vocab_size:
                raise InvalidRequestError(
                    f"{name}[{index}] must be a token from 0 to {vocab_size - 1}; given {value}"
                )
        return tuple(dict.fromkeys(values.tolist()))

    def label(self, name: str, default: str) -> str:
        text = self.text(name, default)
        if len(text) > MAX_LABEL_LENGTH:
            raise InvalidRequestError(
                f"{name} may have {MAX_LABEL_LENGTH} characters; given {len(text)}"
            )
        return text or default

    def prompt_text(self) -> str | None:
        if "text_input" not in self._arrays:
            return None
        text = self.text("text_input", "")
        if not text:
            raise InvalidRequestError("text_input must have at least 1 character; given 0")
        return text

    def messages(self, max_messages: int) -> tuple[Mapping[str, Any], ...] | None:
        parsed = self._objects("messages")
        if parsed is None:
            return None
        if len(parsed) > max_messages:
            raise InvalidRequestError(
                f"messages may have {max_messages} messages, one for each token of the context; "
                f"given {len(parsed)}"
            )
        for index, message in enumerate(parsed):
            if not isinstance(message, dict) or not all(
                isinstance(message.get(key), str) for key in ("role", "content")
            ):
                raise InvalidRequestError(
                    f"messages[{index}] must be an object with the texts 'role' and 'content'"
                )
            for number, call in enumerate(_calls_of(message, index)):
                name = f"messages[{index}].tool_calls[{number}]"
                _check_function(call, name, "arguments", (dict, str))
        return tuple(parsed)

    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """Return the tools, which need `messages`; empty without any."""
        parsed = self._objects("tools")
        if parsed is None:
            return ()
        if "messages" not in self._arrays:
            raise InvalidRequestError("tools need messages, whose chat template shows them")
        for index, tool in enumerate(parsed):
            _check_function(tool, f"tools[{index}]", "parameters", (dict,))
        return tuple(parsed)

    def _objects(self, name: str) -> list[Any] | None:
        """Return the JSON list in an input of this name; None without the input."""
        if name not in self._arrays:
            return None
        try:
            parsed = json.loads(self.text(name, "", JSON_GROWTH * self._max_text_bytes))
            # This refuses half a surrogate pair: "\ud83d" alone is valid JSON but no text.
            json.dumps(parsed, ensure_ascii=False).encode()
        # Python also limits nesting and the length of numbers, so JSONDecodeError is not enough.
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(f"{name} must be a JSON list of {name}: {error}") from None
        if not isinstance(parsed, list) or not parsed:
            raise InvalidRequestError(f"{name} must be a JSON list with at least 1 {name[:-1]}")
        return parsed

    def logit_bias(self, vocab_size: int) -> tuple[tuple[int, float], ...]:
        """Return sorted pairs (token, bias) from a JSON object of both, as in OpenAI's API."""
        try:
            parsed = json.loads(self.text("logit_bias", "", MAX_BIAS_BYTES * vocab_size) or "{}")
            pairs = [(_token_of(key), float(bias)) for key, bias in parsed.items()]
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

    def prompt_ids(self, vocab_size: int, max_seq_len: int) -> tuple[int, ...] | None:
        if "input_ids" not in self._arrays:
            return None
        ids = self._arrays["input_ids"].ravel()
        if not ids.size:
            raise InvalidRequestError("input_ids must have at least 1 token; given 0")
        if ids.size >= max_seq_len:
            raise InvalidRequestError(
                f"input_ids may have {max_seq_len - 1} tokens; given {ids.size}"
            )
        outside = ids[(ids < 0) | (ids >= vocab_size)]
        if outside.size:
            raise InvalidRequestError(
                f"input_ids must lie from 0 to {vocab_size - 1}; given {int(outside[0])}"
            )
        return tuple(ids.tolist())

    @staticmethod
    def _check_size(name: str, num_bytes: int, limit: int) -> None:
        if num_bytes > limit:
            raise InvalidRequestError(f"{name} may have {limit} bytes; given {num_bytes}")

    @staticmethod
    def _decode(name: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise InvalidRequestError(f"{name} must be UTF-8 text") from None


def _calls_of(message: Mapping[str, Any], index: int) -> list[Any]:
    calls = message.get("tool_calls")
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise InvalidRequestError(f"messages[{index}].tool_calls must be a list")
    return calls


def _check_function(value: Any, name: str, field: str, kinds: tuple[type, ...]) -> None:
    """Raise InvalidRequestError if a tool or a call has no function with a `field` of these kinds.

    The field may be left out.
    """
    function = value.get("function") if isinstance(value, dict) else None
    if (
        not isinstance(function, dict)
        or not isinstance(function.get("name"), str)
        or not isinstance(function.get(field, {}), kinds)
    ):
        wanted = "the object" if kinds == (dict,) else "the object or text"
        raise InvalidRequestError(
            f"{name} must be an object with 'function', which has the text 'name' and {wanted} "
            f"{field!r}"
        )


def _token_of(key: str) -> int:
    """Return the token that a key names. Raises ValueError for another spelling of a number."""
    token = int(key)
    if str(token) != key:
        raise ValueError(key)
    return token
