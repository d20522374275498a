"""The adapter for engines of TensorRT-LLM's LLM API, which speculate inside.

Such an engine takes and returns text instead of tokens. It takes no drafts, so it can generate but
not verify. It is always asked to stream, because it never answers a request without streaming that
is stopped. Source: all_models/llmapi/tensorrt_llm of TensorRT-LLM's triton_backend, config.pbtxt
and 1/model.py (main, July 2026).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.engines.bls_requests import BlsRequests, tensor, values
from specdec.engines.protocol import EngineClock, EngineCounts, Verification
from specdec.engines.text_tokens import Cut, TextTokens
from specdec.engines.wire.contract import RECEIPT_ADDRESS
from specdec.errors import EngineFailedError, UnsupportedError
from specdec.token_ids import TokenIds

_SAMPLING = "sampling_param_"
_TIMES = ("arrival_time_ns", "last_token_time_ns")
_COUNTS = ("total_draft_tokens", "total_accepted_draft_tokens")
_OUTPUTS = ("text_output", "finish_reason", *_TIMES, *_COUNTS)
_GOES_ON = ("", "None")
"""Values of finish_reason in all responses but the last."""
_ENDS = ("stop", "length")
"""Values of finish_reason in the last response of a complete answer."""


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """The prompt and sampling parameters for the engine."""

    text: str
    """The prompt as text, without a first token that the engine adds itself."""
    params: SamplingParams
    """Sampling parameters. Only temperature, top-k, top-p, seed, and presence and frequency penalty
    reach the engine."""


class LlmapiTarget:
    """A `TargetEngine` for one request to such an engine; it can stream but not verify."""

    def __init__(
        self,
        model: str,
        request_id: str,
        prompt: TextPrompt,
        cut: Cut,
        max_tokens: int,
        clock: EngineClock,
        counts: EngineCounts,
        has_receipts: bool,
    ) -> None:
        """Take the prompt, and `cut`, which splits the answer's text into tokens.

        `max_tokens` limits the answer. Times and counts of the last response are added to `clock`
        and `counts`. With `has_receipts`, the engine waits for a receipt of each response
        (receipts.py).
        """
        self._model = model
        self._prompt = prompt
        self._clock = clock
        self._counts = counts
        self._tokens = TextTokens(cut, max_tokens)
        self._outputs = (*_OUTPUTS, RECEIPT_ADDRESS) if has_receipts else _OUTPUTS
        self._requests = BlsRequests(model, f"{request_id}:target", _stop, _OUTPUTS)

    def next_text(self) -> str:
        """Take the text of the next token from `stream`; call it once for each token, in order."""
        return self._tokens.next_text()

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        """Generate the answer, as `TargetEngine.stream` describes.

        Closing the generator stops the engine. `context` is not used, because the engine gets the
        prompt as text. Raise EngineFailedError if the engine fails, ends with an unknown
        finish_reason, or changes text that it has sent.
        """
        del context
        is_over = False
        responses = self._requests.responses(self._inputs(max_tokens), self._outputs)
        try:
            for response in responses:
                reason = _text(response, "finish_reason")
                is_over = reason not in _GOES_ON
                if is_over and reason not in _ENDS:
                    raise EngineFailedError(f"{self._model}: the answer ended by {reason!r}")
                if is_over:
                    self._count(response)
                tokens = self._tokens.add(_text(response, "text_output"), is_last=is_over)
                if tokens or is_over:
                    yield Verification(tokens, ended=reason == "stop")
        finally:
            if not is_over:  # Abort first: after `close` it would do nothing.
                self._requests.abort()
            responses.close()
        if not is_over:
            raise EngineFailedError(f"{self._model}: the stream ended without a finish_reason")

    def verify(self, context: TokenIds, draft: Any) -> Verification:  # noqa: ARG002
        """Raise UnsupportedError, because such an engine takes no drafts."""
        raise UnsupportedError(f"{self._model} speculates by itself; it verifies no drafts")

    def abort(self) -> None:
        """Ask the engine to end the running request; do nothing without one."""
        self._requests.abort()

    def check(self) -> None:
        """Raise EngineLostError if the engine's process has died; may wait for a slow engine."""
        self._requests.check()

    def _inputs(self, max_tokens: int) -> list[Any]:
        params = self._prompt.params
        inputs = [_input("text_input", self._prompt.text.encode(), np.object_)]
        inputs += [
            _input(name, True, np.bool_)
            for name in (
                "streaming",
                "return_finish_reason",
                f"{_SAMPLING}return_perf_metrics",
                f"{_SAMPLING}exclude_input_from_output",
            )
        ]
        sampling: dict[str, tuple[Any, Any]] = {"max_tokens": (max_tokens, np.int32)}
        if params.is_greedy:
            sampling["top_k"] = (1, np.int32)
        else:
            # Some releases stay greedy if they get a temperature alone.
            sampling["temperature"] = (params.temperature, np.float32)
            sampling["top_p"] = (params.top_p, np.float32)
            sampling["seed"] = (params.seed, np.uint64)
            if params.top_k:
                sampling["top_k"] = (params.top_k, np.int32)
        for name in ("presence_penalty", "frequency_penalty"):
            if (value := getattr(params, name)) != getattr(GREEDY, name):
                sampling[name] = (value, np.float32)
        return inputs + [
            _input(_SAMPLING + name, value, dtype) for name, (value, dtype) in sampling.items()
        ]

    def _count(self, response: Any) -> None:
        """Add the times and counts of the last response.

        The numbers may come as text, whatever the model's configuration says.
        """
        arrival, last = (_number(response, name) for name in _TIMES)
        self._clock.busy_s += max(0.0, last - arrival) / 1e9
        drafted, accepted = (int(_number(response, name)) for name in _COUNTS)
        self._counts.num_draft_tokens += drafted
        self._counts.num_accepted_tokens += accepted


def _stop() -> list[Any]:
    return [_input("text_input", b"", np.object_), _input("stop", True, np.bool_)]


def _input(name: str, value: Any, dtype: Any) -> Any:
    return tensor(name, np.asarray([value], dtype=dtype))


def _text(response: Any, name: str) -> str:
    found = values(response, name)
    return found[0].decode() if found else ""


def _number(response: Any, name: str) -> float:
    found = values(response, name)
    return float(found[0]) if found else 0.0
