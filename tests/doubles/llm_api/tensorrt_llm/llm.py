"""LLM and its results, as in tensorrt_llm/llmapi/llm.py and tensorrt_llm/executor/result.py."""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import dataclass, field
from typing import Any

from tensorrt_llm._torch.pyexecutor.py_executor import PyExecutor
from tensorrt_llm._torch.pyexecutor.resource_manager import BaseResourceManager
from tensorrt_llm._torch.speculative.drafter import Drafter
from tensorrt_llm.executor.utils import RequestError
from tensorrt_llm.llmapi import (
    GuidedDecodingParams,
    KvCacheConfig,
    UserProvidedDecodingConfig,
)
from tensorrt_llm.sampling_params import SamplingParams
from tensorrt_llm.target import open_target


@dataclass(slots=True)
class Logprob:
    """As tensorrt_llm.executor.result.Logprob."""

    logprob: float
    rank: int | None = None


@dataclass(slots=True)
class CompletionOutput:
    """As tensorrt_llm.executor.result.CompletionOutput."""

    index: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    finish_reason: str | None = None


class GenerationResult:
    """The result of one request; iterating yields it again and again, each time with more."""

    def __init__(self, request_id: int, params: SamplingParams, executor: PyExecutor) -> None:
        self.request_id = request_id
        self.outputs = [CompletionOutput(0)]
        self.finished = False
        self._params = params
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, tokens: list[int], log_probs: list[float], reason: str | None) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (tokens, log_probs, reason))

    def fail(self, error: str) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, RequestError(error))

    def abort(self) -> None:
        self._executor.cancel(self.request_id)

    def __aiter__(self) -> GenerationResult:
        return self

    async def __anext__(self) -> GenerationResult:
        if self.finished:
            raise StopAsyncIteration
        response = await self._queue.get()
        if isinstance(response, RequestError):
            raise response
        tokens, log_probs, reason = response
        output = self.outputs[0]
        output.token_ids.extend(tokens)
        if self._params.logprobs:
            pairs = zip(tokens, log_probs, strict=True)
            output.logprobs.extend({token: Logprob(each, 1)} for token, each in pairs)
        self.finished, output.finish_reason = reason is not None, reason
        return self


class LLM:
    """The engine. Unknown arguments raise TypeError."""

    def __init__(
        self,
        *,
        model: str,
        backend: str,
        dtype: str,
        max_seq_len: int,
        max_batch_size: int,
        max_num_tokens: int,
        kv_cache_config: KvCacheConfig,
        disable_overlap_scheduler: bool = False,
        speculative_config: UserProvidedDecodingConfig | None = None,
        enable_chunked_prefill: bool = False,
        guided_decoding_backend: str | None = None,
    ) -> None:
        assert backend == "pytorch"
        assert isinstance(kv_cache_config, KvCacheConfig)
        if speculative_config is not None:
            assert isinstance(speculative_config, UserProvidedDecodingConfig)
            assert isinstance(speculative_config.drafter, Drafter)
            manager = speculative_config.resource_manager
            assert manager is None or isinstance(manager, BaseResourceManager)
            assert disable_overlap_scheduler, "the overlap scheduler drafts one step late"
            assert not kv_cache_config.enable_block_reuse
            single = os.environ.get("TLLM_WORKER_USE_SINGLE_PROCESS")
            assert single == "1", "the drafter is pickled and runs in another process"
        self._target = open_target(model, dtype)
        self._max_seq_len = max_seq_len
        self._max_prompt = max_seq_len if enable_chunked_prefill else max_num_tokens
        self._executor: PyExecutor | None = PyExecutor(
            self._target, speculative_config, max_batch_size, self._target.vocab_size
        )
        self._numbers = itertools.count(1)
        assert guided_decoding_backend in {None, "xgrammar", "llguidance"}
        self._has_llguidance = guided_decoding_backend == "llguidance"

    def generate_async(
        self,
        inputs: list[int],
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = False,
    ) -> GenerationResult:
        """Submit a request; its result is iterated."""
        assert streaming
        assert all(type(each) is int for each in inputs)
        params = sampling_params or SamplingParams()
        if len(inputs) >= self._max_seq_len:
            raise ValueError(
                f"The prompt length ({len(inputs)}) should not exceed max_seq_len "
                f"({self._max_seq_len})"
            )
        if len(inputs) > self._max_prompt:
            raise ValueError(
                f"The prompt length ({len(inputs)}) should not exceed max_num_tokens "
                f"({self._max_prompt})"
            )
        guide = params.guided_decoding
        assert guide is None or isinstance(guide, GuidedDecodingParams)
        assert guide is None or self._has_llguidance, "the guide would have no effect"
        assert guide is None or not guide.structural_tag, "llguidance has no structural tags there"
        if self._executor is None:
            raise RuntimeError("the LLM has shut down")
        result = GenerationResult(next(self._numbers), params, self._executor)
        self._executor.enqueue(inputs, params, result)
        return result

    def shutdown(self) -> None:
        """End all requests and the executor."""
        if self._executor is not None:
            executor, self._executor = self._executor, None
            executor.shutdown()
            self._target.close()
