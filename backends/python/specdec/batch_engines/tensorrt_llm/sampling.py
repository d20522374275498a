"""Convert a call of the contract to TensorRT-LLM's sampling parameters."""

from __future__ import annotations

from typing import Any

import torch

from specdec.batch_engines.tensorrt_llm.guides import guided_decoding
from specdec.errors import UnsupportedError
from specdec.torch_engine.task import Task

NEUTRAL: dict[str, tuple[object, tuple[int, int]]] = {
    "temperature": (0.0, (1, 1)),
    "min_tokens": (0, (1, 1)),
    "logit_bias": ((), (1, 1)),
    "min_p": (0.0, (1, 3)),
    "repetition_penalty": (1.0, (1, 3)),
    "presence_penalty": (0.0, (1, 3)),
    "frequency_penalty": (0.0, (1, 3)),
}
"""For each parameter, the value without effect and the first release whose Torch sampler applies
it. That sampler verifies draft tokens."""

GUIDE = "guided_decoding"
"""The argument for a guide; `LlmApiGenerator` makes TensorRT-LLM's GuidedDecodingParams of it."""
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


def min_tokens(task: Task) -> int:
    """Return the least number of tokens that the engine generates before the end token."""
    num_output = len(task.input_ids) - task.num_prompt_tokens
    return max(0, task.params.min_tokens - num_output)


def sampling_arguments(task: Task, release: tuple[int, int], vocab_size: int) -> dict[str, Any]:
    """Return the arguments of TensorRT-LLM's SamplingParams for a task.

    `release` are the first two numbers of TensorRT-LLM's version. Raises UnsupportedError for what
    it cannot do. Source: tensorrt_llm/sampling_params.py, the Torch sampler in
    tensorrt_llm/_torch/pyexecutor/sampler.py, and the page "Sampling" of the documentation, 1.0 to
    1.3.
    """
    _refuse_unsupported(task, release)
    params = task.params
    arguments: dict[str, Any] = {
        "max_tokens": task.max_new_tokens,
        "detokenize": False,
        # 1 gives the drawn token's in all releases, beside the most likely one's.
        "logprobs": 1 if task.wants_log_probs else None,
    }
    if task.end_id is None:
        arguments["ignore_eos"] = True
    else:
        arguments |= {"end_id": task.end_id, "pad_id": task.end_id}
    if min_tokens(task):
        arguments["min_tokens"] = min_tokens(task)
    if params.guide is not None:
        arguments[GUIDE] = guided_decoding(params.guide)
    if params.logit_bias:
        bias = arguments["embedding_bias"] = torch.zeros(vocab_size)
        for token, value in params.logit_bias:
            bias[token] = value
    arguments |= {
        name: getattr(params, name)
        for name in PENALTIES
        if getattr(params, name) != NEUTRAL[name][0]
    }
    if params.is_greedy:  # Without any of the parameters below, all releases are greedy.
        return arguments
    if params.min_p:
        arguments["min_p"] = params.min_p
    return arguments | {
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "seed": params.seed % 2**63,
    }


def _refuse_unsupported(task: Task, release: tuple[int, int]) -> None:
    params = task.params
    if params.bad_words or params.bad_texts:
        raise UnsupportedError("TensorRT-LLM's Torch sampler has no bad words; leave them out")
    if params.guide is not None and params.min_tokens:
        raise UnsupportedError(
            "TensorRT-LLM cannot keep min_tokens where a guide ends; leave it out"
        )
    if task.wants_logits:
        raise UnsupportedError("this engine returns no logits; leave return_generation_logits out")
    if task.num_top_log_probs:
        raise UnsupportedError(
            "this engine returns log-probabilities of drawn tokens; leave num_top_log_probs out"
        )
    for name, (neutral, first) in NEUTRAL.items():
        if release < first and getattr(params, name) != neutral:
            raise UnsupportedError(
                f"TensorRT-LLM {release[0]}.{release[1]} ignores {name}, which needs release "
                f"{first[0]}.{first[1]}; leave it out"
            )
