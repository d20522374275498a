"""As tensorrt_llm/_torch/pyexecutor/llm_request.py."""

from __future__ import annotations

import enum
from typing import Any


class LlmRequestState(enum.Enum):
    """The states that occur here."""

    CONTEXT_INIT = 1
    GENERATION_IN_PROGRESS = 2
    GENERATION_COMPLETE = 3


class LlmRequest:
    """A request. Any attribute that TensorRT-LLM does not have raises AttributeError."""

    __slots__ = (
        "_tokens",
        "params",
        "py_client_id",
        "py_draft_tokens",
        "py_end_id",
        "py_max_new_tokens",
        "py_orig_prompt_len",
        "py_request_id",
        "request_id",
        "result",
        "state",
    )

    def __init__(self, request_id: int, prompt: list[int], params: Any, result: Any) -> None:
        self.request_id = self.py_request_id = request_id
        self.py_client_id = None if result is None else result.request_id
        self.py_orig_prompt_len = len(prompt)
        self.py_max_new_tokens = params.max_tokens
        self.py_end_id = -1 if params.ignore_eos else params.end_id
        self.py_draft_tokens: list[int] = []
        self.state = LlmRequestState.CONTEXT_INIT
        self.params, self.result = params, result
        self._tokens = [*prompt]

    def get_tokens(self, beam: int) -> list[int]:
        """Return prompt and answer so far."""
        assert beam == 0
        return [*self._tokens]

    def get_num_tokens(self, beam: int) -> int:
        """Return the number of tokens of prompt and answer so far."""
        assert beam == 0
        return len(self._tokens)

    def get_token(self, beam: int, position: int) -> int:
        """Return one token of prompt and answer."""
        assert beam == 0
        assert 0 <= position < len(self._tokens)
        return self._tokens[position]

    def add_new_token(self, token: int, beam: int) -> None:
        """Add a token to the answer."""
        assert beam == 0
        self._tokens.append(token)

    @property
    def num_left(self) -> int:
        return self.py_orig_prompt_len + self.py_max_new_tokens - len(self._tokens)
