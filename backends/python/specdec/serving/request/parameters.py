"""Refuse unknown fields of a request by name.

Triton gives the model two kinds of fields as request parameters: keys of an HTTP body that are no
inputs, and parameters of a gRPC request. Without this check a misspelt input would be ignored.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection
from typing import Any

from specdec.errors import InvalidRequestError, UnsupportedError, shown
from specdec.serving.request.values import Arrays

NEUTRAL_INPUTS: dict[str, tuple[Any, ...]] = {
    "beam_width": (1,),
    "num_return_sequences": (1,),
    "length_penalty": (0, 1),
    "len_penalty": (0, 1),
    "early_stopping": (False,),
    "return_context_logits": (False,),
    "return_generation_logits": (False,),
    "return_num_input_tokens": (False, True),
    "return_num_output_tokens": (False, True),
    "return_finish_reason": (False, True),
    "lora_task_id": (),
}
"""Inputs of NVIDIA's models that clients send, with the values at which they change nothing."""

_TRACE_CONTEXT = {"traceparent", "tracestate", "baggage"}
_TRITONS_OWN = {"id", "binary_data_output", "priority", "timeout", "headers"}
_TRITONS_OWN |= {"sequence_id", "sequence_start", "sequence_end"}


def check_parameters(text: str, inputs: Collection[str]) -> None:
    """Check a request's parameters; `text` is their JSON object, `inputs` the model's input names.

    Allowed are Triton's own parameters, trace context, NVIDIA's fields at neutral values, and
    forwarded headers. A name with a hyphen counts as a header, unless it is an input's name with
    hyphens for underscores. Raises InvalidRequestError for any other name, and UnsupportedError for
    a field of NVIDIA's with a value that is not neutral.
    """
    # Fast path: most requests have no parameters.
    if not text or text == "{}":
        return
    for name, value in json.loads(text).items():
        if name in _TRITONS_OWN | _TRACE_CONTEXT or name.startswith("triton_"):
            continue
        if "-" in name and name.replace("-", "_").lower() not in inputs:
            continue
        if name in NEUTRAL_INPUTS:
            _check_neutral(name, value)
            continue
        if name in inputs:
            raise InvalidRequestError(
                f"{name} came as a request parameter; send it as an input tensor"
            )
        nearest = difflib.get_close_matches(name.lower(), inputs, n=1, cutoff=0.6)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise InvalidRequestError(f"unknown field {shown(name)}{hint}")


def check_neutral_inputs(arrays: Arrays) -> None:
    """Raise UnsupportedError if an input of NVIDIA's models has a value that is not neutral."""
    for name in NEUTRAL_INPUTS.keys() & arrays.keys():
        value = arrays[name].ravel()[0]
        _check_neutral(name, value.decode(errors="replace") if isinstance(value, bytes) else value)


def _check_neutral(name: str, value: Any) -> None:
    allowed = NEUTRAL_INPUTS[name]
    if value not in allowed:
        texts = " or ".join(map(repr, allowed)) or "left out"
        raise UnsupportedError(f"{name} must be {texts}; given {shown(value)}")
