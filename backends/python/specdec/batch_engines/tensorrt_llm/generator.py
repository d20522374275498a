"""Generate answers by TensorRT-LLM's LLM API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from specdec.batch_engines.generator import Part
from specdec.batch_engines.requests import NewRequest
from specdec.batch_engines.tensorrt_llm.hooks import StepHooks
from specdec.batch_engines.tensorrt_llm.sampling import GUIDE
from specdec.errors import EngineFailedError, InvalidRequestError, SpecdecError
from specdec.torch_engine.task import Task

_COMPLETE = ("stop", "length")
"""Values of finish_reason for an answer that ended by itself."""


@dataclass(frozen=True, slots=True)
class LlmApiArguments:
    """The arguments of one request."""

    sampling: dict[str, Any]
    """Arguments of TensorRT-LLM's SamplingParams."""
    drafting: Callable[[int], NewRequest]
    """Returns the request as our drafters take it, given its client id."""


class LlmApiGenerator:
    """`tensorrt_llm.LLM` as a `Generator`."""

    name = "TensorRT-LLM"

    def __init__(self, tensorrt_llm: Any, llm: Any, hooks: StepHooks | None) -> None:
        """Take the package TensorRT-LLM and its LLM. `hooks` are None without speculation."""
        self._tensorrt_llm = tensorrt_llm
        self._llm = llm
        self._hooks = hooks
        self._failed = tensorrt_llm.executor.utils.RequestError

    @property
    def has_failed(self) -> bool:
        """Whether the executor has shut down."""
        executor = self._llm._executor  # noqa: SLF001 - there is no public way
        return executor is None or bool(executor.is_shutdown())

    async def ping(self) -> bool:
        """Return False: the executor's steps show only in tokens and in our drafters' reports."""
        return False

    async def generate(self, task: Task, arguments: LlmApiArguments) -> AsyncGenerator[Part]:
        """Yield the parts of an answer, as `Generator` describes.

        Raises InvalidRequestError for arguments that TensorRT-LLM refuses.
        """
        try:
            params = self._tensorrt_llm.SamplingParams(**self._with_guide(arguments.sampling))
            result = self._llm.generate_async(task.input_ids.tolist(), params, streaming=True)
        except ValueError as error:
            raise InvalidRequestError(f"TensorRT-LLM refused the request: {error}") from error
        num_tokens, is_over = 0, False
        try:
            if self._hooks is not None:
                self._hooks.register(result.request_id, arguments.drafting(result.request_id))
            async for _ in result:
                is_over = bool(result.finished)
                part = _part(result, task, num_tokens)
                num_tokens += len(part.tokens)
                yield part
        finally:
            if not is_over:
                result.abort()
            if self._hooks is not None:
                self._hooks.forget(result.request_id)

    def _with_guide(self, sampling: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with TensorRT-LLM's own object for a guide."""
        if GUIDE not in sampling:
            return sampling
        params = self._tensorrt_llm.llmapi.GuidedDecodingParams(**sampling[GUIDE])
        return {**sampling, GUIDE: params}

    def error_of(self, error: Exception) -> SpecdecError | None:
        """Return what a client gets for an exception of the LLM API; None if it is unexpected."""
        if isinstance(error, self._failed):
            return EngineFailedError(f"TensorRT-LLM failed on the request: {error}")
        return None


def _part(result: Any, task: Task, num_tokens: int) -> Part:
    """Return the tokens of a result after its first `num_tokens`.

    Raises EngineFailedError if TensorRT-LLM cuts the answer.
    """
    completion, is_over = result.outputs[0], bool(result.finished)
    reason = completion.finish_reason
    if is_over and reason not in _COMPLETE:
        raise EngineFailedError(f"TensorRT-LLM ended the answer by {reason!r}")
    ended = is_over and reason == "stop"
    tokens = tuple(completion.token_ids[num_tokens:])
    if ended and tokens and tokens[-1] == task.end_id:
        tokens = tokens[:-1]
    log_probs: tuple[float, ...] = ()
    if task.wants_log_probs:
        drawn = zip(tokens, completion.logprobs[num_tokens:], strict=False)
        log_probs = tuple(float(each[token].logprob) for token, each in drawn)
    return Part(tokens, log_probs, ended=ended, is_last=is_over)
