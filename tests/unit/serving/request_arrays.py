"""Requests to the model `specdec`, in the form of the arrays that Triton hands over."""

from __future__ import annotations

import numpy as np

from specdec.drafting.registry import DRAFT_MODEL, HEAD, SCRIPTED, drafter_ids
from specdec.serving.request.request import RequestLimits, parse_request

DRAFTERS = drafter_ids({DRAFT_MODEL: ("draft",), HEAD: (), SCRIPTED: ()})
LIMITS = RequestLimits(vocab_size=1000, max_draft_len=16, drafters=DRAFTERS)
INT32_MAX = 2**31 - 1
TYPES = {
    "INT32": np.int32,
    "UINT64": np.uint64,
    "FP32": np.float32,
    "BOOL": np.bool_,
    "STRING": np.object_,
}
SCALARS = {
    "text_input": "STRING",
    "messages": "STRING",
    "tools": "STRING",
    "max_tokens": "INT32",
    "min_tokens": "INT32",
    "stream": "BOOL",
    "temperature": "FP32",
    "top_p": "FP32",
    "min_p": "FP32",
    "top_k": "INT32",
    "repetition_penalty": "FP32",
    "presence_penalty": "FP32",
    "frequency_penalty": "FP32",
    "seed": "UINT64",
    "random_seed": "UINT64",
    "end_id": "INT32",
    "pad_id": "INT32",
    "return_log_probs": "BOOL",
    "exclude_input_in_output": "BOOL",
    "num_draft_tokens": "INT32",
    "drafter": "STRING",
    "verification": "STRING",
    "task": "STRING",
    "tenant": "STRING",
    "prediction": "STRING",
    "logit_bias": "STRING",
    "deadline_ms": "INT32",
    "return_perf_metrics": "BOOL",
    "ignore_eos": "BOOL",
    "add_generation_prompt": "BOOL",
    "continue_final_message": "BOOL",
    "skip_special_tokens": "BOOL",
    "return_prompt_token_ids": "BOOL",
    "num_top_log_probs": "INT32",
    "min_length": "INT32",
    "beam_width": "INT32",
    "num_return_sequences": "INT32",
    "lora_task_id": "UINT64",
}
LISTS = {
    "input_ids": "INT32",
    "stop_token_ids": "INT32",
    "stop_words": "STRING",
    "bad_words": "STRING",
}


def array(name, value):
    """Return the array [n] that Triton hands over for the input `name`; texts become bytes."""
    values = list(value) if name in LISTS else [value]
    encoded = [item.encode() if isinstance(item, str) else item for item in values]
    return np.asarray(encoded, dtype=TYPES[(SCALARS | LISTS)[name]])


def parse(**inputs):
    """Parse a request with these inputs; if they have no prompt, add a `text_input`."""
    if not inputs.keys() & {"text_input", "messages", "input_ids"}:
        inputs["text_input"] = "x"
    return parse_request({name: array(name, inputs[name]) for name in inputs}, LIMITS)
