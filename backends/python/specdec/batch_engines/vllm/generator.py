"""Generate answers by vLLM's AsyncLLM."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from specdec.batch_engines.generator import Part
from specdec.batch_engines.vllm.sampling import GUIDE
from specdec.errors import EngineFailedError, EngineLostError, InvalidRequestError, SpecdecError
from specdec.token_ids import TopLogProbs
from specdec.torch_engine.task import Task

_COMPLETE = ("stop", "length")
"""Values of vLLM's finish_reason for an answer that ended by itself."""


class VllmGenerator:
    """AsyncLLM as a `Generator`."""

    name = "vLLM"

    def __init__(self, vllm: Any, llm: Any) -> None:
        """Take the package vLLM and its AsyncLLM."""
        self._vllm = vllm
        self._llm = llm
        self._dead = vllm.v1.engine.exceptions.EngineDeadError
        # Before VLLMClientError, vLLM raised ValueError for what the client did wrong.
        self._refused = getattr(vllm.exceptions, "VLLMClientError", ValueError)

    @property
    def has_failed(self) -> bool:
        """Whether vLLM's engine process has died."""
        return bool(self._llm.errored)

    async def ping(self) -> bool:
        """Return True once vLLM's workers have ended their current step."""
        await self._llm.collective_rpc("check_health")
        return True

    async def generate(self, task: Task, arguments: Mapping[str, Any]) -> AsyncGenerator[Part]:
        """Yield the parts of an answer, as `Generator` describes."""
        vllm = self._vllm
        kind = vllm.sampling_params.RequestOutputKind.DELTA
        arguments = dict(arguments)
        if GUIDE in arguments:
            guide = vllm.sampling_params.StructuredOutputsParams(**arguments[GUIDE])
            arguments[GUIDE] = guide
        params = vllm.SamplingParams(**arguments, output_kind=kind)
        prompt = vllm.TokensPrompt(prompt_token_ids=task.input_ids.tolist())
        if task.cache_salt:
            prompt["cache_salt"] = task.cache_salt
        async with aclosing(self._llm.generate(prompt, params, task.request_id)) as parts:
            async for part in parts:
                yield _part(part, task)

    def error_of(self, error: Exception) -> SpecdecError | None:
        """Return what a client gets for an exception of vLLM; None if it is unexpected."""
        if isinstance(error, self._dead):
            return EngineLostError("vLLM's engine process has died")
        if isinstance(error, self._refused):
            return InvalidRequestError(f"vLLM refused the request: {error}")
        return None


def _part(part: Any, task: Task) -> Part:
    """Convert vLLM's RequestOutput. Raises EngineFailedError if it cuts the answer."""
    completion = part.outputs[0]
    tokens, reason = tuple(completion.token_ids), completion.finish_reason
    if reason is not None and reason not in _COMPLETE:
        raise EngineFailedError(f"vLLM ended the answer by {reason!r}")
    ended = reason == "stop"
    if ended:
        tokens = tokens[:-1]  # the end token
    log_probs: tuple[float, ...] = ()
    if task.wants_log_probs:
        drawn = zip(tokens, completion.logprobs, strict=False)
        log_probs = tuple(float(each[token].logprob) for token, each in drawn)
    top: tuple[TopLogProbs, ...] = ()
    if size := task.num_top_log_probs:
        known = zip(tokens, completion.logprobs, strict=False)
        top = tuple(_likeliest(each, size) for _, each in known)
    return Part(tokens, log_probs, top, ended=ended, is_last=bool(part.finished))


def _likeliest(log_probs: Mapping[int, Any], size: int) -> TopLogProbs:
    """Return the `size` likeliest of vLLM's Logprob objects by token.

    vLLM gives that of the drawn token too, whatever its rank.
    """
    pairs = [(token, float(each.logprob)) for token, each in log_probs.items()]
    return tuple(sorted(pairs, key=lambda pair: -pair[1])[:size])
