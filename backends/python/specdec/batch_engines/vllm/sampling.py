"""Convert a call of the contract to vLLM's sampling parameters."""

from __future__ import annotations

from typing import Any

from specdec.batch_engines.vllm.guides import structured_outputs
from specdec.errors import UnsupportedError
from specdec.torch_engine.task import Task

GUIDE = "structured_outputs"
"""The argument for a guide; `VllmGenerator` makes vLLM's StructuredOutputsParams of it."""
OPTIONS = "specdec"
"""Key in vLLM's `extra_args` under which a request carries its id and its drafting options."""


def sampling_arguments(task: Task, drafting: dict[str, Any], *, has_drafts: bool) -> dict[str, Any]:
    """Return the arguments of vLLM's SamplingParams for a task.

    `drafting` are the request's drafting options as a JSON object. `has_drafts`: whether the engine
    verifies draft tokens; vLLM then refuses some parameters, for all requests. Raises
    UnsupportedError for what vLLM cannot do. Source: vllm/sampling_params.py, version 0.32.
    """
    params = task.params
    if params.bad_words:
        raise UnsupportedError("vLLM takes bad_texts, not the token sequences of bad_words_list")
    if task.wants_logits:
        raise UnsupportedError("vLLM returns no logits; leave return_generation_logits out")
    if has_drafts and (params.min_p or params.logit_bias):
        name = "min_p" if params.min_p else "logit_bias"
        raise UnsupportedError(
            f"vLLM has no {name} in an engine that verifies draft tokens (max_draft_len)"
        )
    if params.guide is not None and params.min_tokens:
        raise UnsupportedError("vLLM cannot keep min_tokens where a guide ends; leave it out")
    num_output = len(task.input_ids) - task.num_prompt_tokens
    return {
        "max_tokens": task.max_new_tokens,
        "temperature": 0.0 if params.is_greedy else params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "min_tokens": max(0, params.min_tokens - num_output),
        "seed": None if params.is_greedy else params.seed % 2**63,
        "bad_words": list(params.bad_texts) or None,
        "logit_bias": dict(params.logit_bias) or None,
        # 0 asks for the log-probability of the drawn token alone.
        "logprobs": task.num_top_log_probs if task.wants_log_probs else None,
        # The request alone decides which token ends it.
        "ignore_eos": True,
        "stop_token_ids": [] if task.end_id is None else [task.end_id],
        "detokenize": False,
        "extra_args": {OPTIONS: {**drafting, "id": task.request_id}},
        **({} if params.guide is None else {GUIDE: structured_outputs(params.guide)}),
    }
