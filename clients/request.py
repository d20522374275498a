"""A request to the model `specdec`, and the tensors in which it is sent.

Both clients build their bodies from `GenerationRequest.tensors`. Names, types and shapes are
defined only here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from specdec.clients.errors import INVALID_REQUEST, SpecdecError
from specdec.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DataType = Literal["BYTES", "BOOL", "INT32", "UINT64", "FP32"]
Scalar = str | bool | int | float

_INTEGER_LIMITS = {"INT32": (-(2**31), 2**31 - 1), "UINT64": (0, 2**64 - 1)}
_FP32_MAX = 3.4028234e38


@dataclass(frozen=True, slots=True)
class WireTensor:
    """An input as it is sent: a scalar has `shape` [1, 1], a list of n values [1, n]."""

    name: str
    datatype: DataType
    shape: tuple[int, int]
    values: tuple[Scalar, ...]
    is_list: bool


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The Triton type of an input of the model, and whether it is a list."""

    datatype: DataType
    is_list: bool


def _scalar(datatype: DataType) -> Any:
    return field(default=None, metadata={"spec": InputSpec(datatype, is_list=False)})


def _list(datatype: DataType) -> Any:
    return field(default=None, metadata={"spec": InputSpec(datatype, is_list=True)})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A request, with one field for each input of `specdec`; docs/api.md describes them.

    A field that is None is not sent, so that the server's default holds. Give exactly one of
    `text_input`, `messages` (chat messages with role and content) and `input_ids`. The server
    checks this and every range. The client does not, so that it cannot refuse what the server
    would take.
    """

    text_input: str | None = _scalar("BYTES")
    messages: Sequence[Mapping[str, Any]] | str | None = _scalar("BYTES")
    tools: Sequence[Mapping[str, Any]] | str | None = _scalar("BYTES")
    input_ids: Sequence[int] | None = _list("INT32")
    add_generation_prompt: bool | None = _scalar("BOOL")
    continue_final_message: bool | None = _scalar("BOOL")
    max_tokens: int | None = _scalar("INT32")
    min_tokens: int | None = _scalar("INT32")
    stream: bool | None = _scalar("BOOL")
    temperature: float | None = _scalar("FP32")
    top_p: float | None = _scalar("FP32")
    min_p: float | None = _scalar("FP32")
    top_k: int | None = _scalar("INT32")
    repetition_penalty: float | None = _scalar("FP32")
    presence_penalty: float | None = _scalar("FP32")
    frequency_penalty: float | None = _scalar("FP32")
    seed: int | None = _scalar("UINT64")
    random_seed: int | None = _scalar("UINT64")
    stop_token_ids: Sequence[int] | None = _list("INT32")
    stop_words: Sequence[str] | None = _list("BYTES")
    bad_words: Sequence[str] | None = _list("BYTES")
    logit_bias: Mapping[int, float] | str | None = _scalar("BYTES")
    end_id: int | None = _scalar("INT32")
    ignore_eos: bool | None = _scalar("BOOL")
    pad_id: int | None = _scalar("INT32")
    skip_special_tokens: bool | None = _scalar("BOOL")
    return_prompt_token_ids: bool | None = _scalar("BOOL")
    return_log_probs: bool | None = _scalar("BOOL")
    num_top_log_probs: int | None = _scalar("INT32")
    exclude_input_in_output: bool | None = _scalar("BOOL")
    num_draft_tokens: int | None = _scalar("INT32")
    drafter: str | None = _scalar("BYTES")
    verification: str | None = _scalar("BYTES")
    task: str | None = _scalar("BYTES")
    tenant: str | None = _scalar("BYTES")
    prediction: str | None = _scalar("BYTES")
    deadline_ms: int | None = _scalar("INT32")
    return_perf_metrics: bool | None = _scalar("BOOL")
    guided_decoding_guide_type: str | None = _scalar("BYTES")
    guided_decoding_guide: str | None = _scalar("BYTES")
    # No tensor but Triton's request id. Every response repeats it, and the clients check it.
    request_id: str = ""

    def tensors(self, *, stream: bool) -> Iterator[WireTensor]:
        """Yield the inputs that are set; `stream` overrides the field of that name.

        Raises SpecdecError (`client_invalid_request`) for a value that its type cannot hold.
        """
        for name, spec in INPUTS.items():
            value: Any = stream if name == "stream" else getattr(self, name)
            if value is None:
                continue
            if name in {"messages", "tools"} and not isinstance(value, str):
                value = json.dumps([dict(each) for each in value], ensure_ascii=False)
            if name == "logit_bias" and not isinstance(value, str):
                value = json.dumps({str(token): bias for token, bias in value.items()})
            values = tuple(value) if spec.is_list else (value,)
            for item in values:
                _check_type(name, spec.datatype, item)
            yield WireTensor(name, spec.datatype, (1, len(values)), values, spec.is_list)


# Every input by name. The contract tests compare them with config.pbtxt.
INPUTS: dict[str, InputSpec] = {
    item.name: item.metadata["spec"] for item in fields(GenerationRequest) if item.metadata
}


def _check_type(name: str, datatype: DataType, value: object) -> None:
    if not _fits(datatype, value):
        message = f"{name} is sent as {datatype}, which cannot hold {shown(value)}"
        raise SpecdecError(message, error_type=INVALID_REQUEST, status="INVALID_ARG")


def _fits(datatype: DataType, value: object) -> bool:
    if datatype == "BYTES":
        return isinstance(value, str) and _is_text(value)
    if datatype == "BOOL" or isinstance(value, bool):
        return datatype == "BOOL" and isinstance(value, bool)
    if datatype == "FP32":
        # NaN and the infinities can be sent; the server refuses them.
        return isinstance(value, int | float) and not _FP32_MAX < abs(value) < math.inf
    low, high = _INTEGER_LIMITS[datatype]
    return isinstance(value, int) and low <= value <= high


def _is_text(value: str) -> bool:
    """Return whether a string has no half of a surrogate pair, which JSON may contain."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
