"""Parses the call of an engine model from the tensors of the contract (contract.py).

The functions are pure. They take arrays and return an immutable call, or raise InvalidRequestError
for inputs that NVIDIA's C++ backend refuses too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.acceptance.modes import EXACT, REJECTION, VERIFICATION_MODES
from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.constraints.guide import GUIDE_KINDS, Guide
from specdec.engines.wire import contract
from specdec.errors import InvalidRequestError
from specdec.token_ids import MAX_TOP_LOG_PROBS
from specdec.torch_engine.task import NO_TOKENS, Task

Arrays = Mapping[str, npt.NDArray[Any]]

_SAMPLING = frozenset(
    {
        *(contract.RUNTIME_TOP_P, contract.TEMPERATURE, contract.MIN_P),
        *(contract.REPETITION_PENALTY, contract.PRESENCE_PENALTY, contract.FREQUENCY_PENALTY),
        *(contract.MIN_TOKENS, contract.MIN_LENGTH, contract.SEED, contract.RANDOM_SEED),
        *(contract.BAD_WORDS_LIST, contract.BAD_TEXTS, contract.EMBEDDING_BIAS),
        contract.GUIDE_TYPE,
    }
)
"""Names of sampling inputs. A call without any of them is GREEDY if its top-k is at most 1."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One request to the engine: to run a task, or to end one."""

    task: Task
    """Task to run; for a stop request, only the task's `request_id` counts."""
    stop: bool
    """Whether to end the task with the same `request_id`."""
    streaming: bool
    """Whether to send a response for each step."""
    exclude_input: bool
    """Whether to leave the tokens of input_ids out of output_ids."""
    return_perf_metrics: bool
    """Whether to return times and counts."""
    requested_outputs: frozenset[str]
    """Names of the outputs that the caller asks for."""
    gives_receipts: bool
    """Whether the caller sends a receipt of each response (receipts.py)."""
    drafting: str = ""
    """The drafting options as JSON, for a target with our drafters inside; empty without."""
    rows: tuple[Task, ...] = ()
    """The tasks of a call with several contexts, answered in one response; empty for all other
    calls."""


def parse_call(
    request_id: str,
    arrays: Arrays,
    requested_outputs: frozenset[str],
    *,
    gives_receipts: bool = False,
) -> EngineCall:
    """Return the call that the inputs `arrays` describe; they have no batch dimension.

    `gives_receipts` counts only for a call that streams. Raise InvalidRequestError for missing
    outputs, values outside their limits, and inputs that contradict each other.
    """
    missing = set(contract.REQUIRED_OUTPUTS) - requested_outputs
    if missing:
        raise InvalidRequestError(f"the outputs {sorted(missing)} must be requested")
    stop = _scalar(arrays, contract.STOP, False)
    if stop and not request_id:
        raise InvalidRequestError("a stop request needs the id of the request to stop")
    if contract.DRAFT_INPUT_IDS in arrays and not arrays[contract.DRAFT_INPUT_IDS].size:
        raise InvalidRequestError("draft_input_ids is empty; leave it out to verify no draft")
    input_ids = arrays.get(contract.INPUT_IDS, NO_TOKENS).ravel()
    num_input = _scalar(arrays, contract.INPUT_LENGTHS, 0)
    num_output = _scalar(arrays, contract.REQUEST_OUTPUT_LEN, 0)
    if not stop:
        if num_input != len(input_ids):
            raise InvalidRequestError(
                f"input_lengths is {num_input}, input_ids has {len(input_ids)} tokens"
            )
        if num_output < 1:
            raise InvalidRequestError(f"request_output_len must be at least 1; given {num_output}")
    num_top = _integer(arrays, contract.NUM_TOP_LOG_PROBS, 0, MAX_TOP_LOG_PROBS)
    wants_log_probs = _scalar(arrays, contract.RETURN_LOG_PROBS, False)
    if num_top and not wants_log_probs:
        raise InvalidRequestError(
            f"num_top_log_probs must be 0 without return_log_probs; given {num_top}"
        )
    streaming = _scalar(arrays, contract.STREAMING, False)
    end_id = _scalar(arrays, contract.END_ID, -1)
    params = sampling_params(arrays)
    if contract.PROMPT_LENGTH not in arrays:
        # As in NVIDIA's backend, min_tokens counts from the end of input_ids, and penalties apply
        # to all tokens in it.
        params = replace(params, min_tokens=params.min_tokens and params.min_tokens + num_input)
    task = Task(
        request_id=request_id,
        input_ids=input_ids,
        max_new_tokens=num_output,
        draft_ids=arrays.get(contract.DRAFT_INPUT_IDS, NO_TOKENS).ravel(),
        draft_parents=tuple(arrays.get(contract.DRAFT_PARENTS, NO_TOKENS).ravel().tolist()),
        end_id=None if end_id < 0 else end_id,
        params=params,
        num_prompt_tokens=_num_prompt_tokens(arrays, params, len(input_ids)),
        wants_logits=_scalar(arrays, contract.RETURN_GENERATION_LOGITS, False),
        verification=_verification(arrays),
        draft_logits=arrays.get(contract.DRAFT_LOGITS),
        wants_log_probs=wants_log_probs,
        num_top_log_probs=num_top,
        num_next=_optional_integer(arrays, contract.NUM_NEXT_DRAFTS, 0),
        cache_salt=_scalar(arrays, contract.CACHE_SALT, b"").decode(errors="replace"),
        next_depth=_optional_integer(arrays, contract.NEXT_DRAFT_DEPTH, 1),
    )
    return EngineCall(
        task=task,
        stop=stop,
        streaming=streaming,
        exclude_input=_scalar(arrays, contract.EXCLUDE_INPUT_IN_OUTPUT, False),
        return_perf_metrics=_scalar(arrays, contract.RETURN_PERF_METRICS, False),
        requested_outputs=requested_outputs,
        gives_receipts=gives_receipts and streaming,
        drafting=_scalar(arrays, contract.DRAFTING, b"").decode(errors="replace"),
        rows=_rows(arrays, task, streaming=streaming),
    )


def sampling_params(arrays: Arrays) -> SamplingParams:
    """Return the sampling parameters of a call, with the defaults of NVIDIA's backend.

    A call is greedy unless it gives top-k or top-p; then its default temperature is 1. Source:
    topK = topP = 0 means topK = 1, and topP = 0 with a topK means topP = 1 (TensorRT-LLM,
    topKSamplingLayer and DefaultDecodingParams). Raise InvalidRequestError for a value outside its
    limits.
    """
    top_k = _integer(arrays, contract.RUNTIME_TOP_K, 0, 2**31 - 1)
    if top_k <= 1 and _SAMPLING.isdisjoint(arrays):  # a shortcut for most calls
        return GREEDY
    top_p = _number(arrays, contract.RUNTIME_TOP_P, 0.0, 0.0, 1.0)
    temperature = _number(arrays, contract.TEMPERATURE, 1.0, 0.0, math.inf)
    if top_k == 1 or (top_k == 0 and top_p == 0.0):
        temperature, top_k, top_p = 0.0, 0, 1.0
    repetition_penalty = _number(arrays, contract.REPETITION_PENALTY, 1.0, 0.0, math.inf)
    if repetition_penalty == 0.0:
        raise InvalidRequestError("repetition_penalty must be above 0; given 0")
    min_tokens = _either(arrays, contract.MIN_TOKENS, contract.MIN_LENGTH, 2**31 - 1)
    return SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p or 1.0,
        min_p=_number(arrays, contract.MIN_P, 0.0, 0.0, 1.0),
        repetition_penalty=repetition_penalty,
        presence_penalty=_number(arrays, contract.PRESENCE_PENALTY, 0.0, -math.inf, math.inf),
        frequency_penalty=_number(arrays, contract.FREQUENCY_PENALTY, 0.0, -math.inf, math.inf),
        min_tokens=min_tokens,
        bad_words=_bad_words(arrays),
        bad_texts=_bad_texts(arrays),
        logit_bias=_logit_bias(arrays),
        guide=_guide(arrays),
        seed=_either(arrays, contract.SEED, contract.RANDOM_SEED, 2**64 - 1),
    )


def _num_prompt_tokens(arrays: Arrays, params: SamplingParams, num_input: int) -> int:
    """Return how many tokens of input_ids are prompt.

    Without prompt_length a guide begins after input_ids, as in NVIDIA's backend.
    """
    if params.guide is not None and contract.PROMPT_LENGTH not in arrays:
        return num_input
    return _integer(arrays, contract.PROMPT_LENGTH, 0, num_input)


def _rows(arrays: Arrays, task: Task, *, streaming: bool) -> tuple[Task, ...]:
    """Return the tasks of a call with several contexts; none for a call with one.

    `task` is that of the call as if it had one context.
    """
    if contract.ROW_LENGTHS not in arrays:
        return ()
    lengths = arrays[contract.ROW_LENGTHS].ravel().tolist()
    salts = arrays.get(contract.ROW_CACHE_SALTS, np.full(len(lengths), b"")).ravel().tolist()
    if min(lengths, default=0) < 1 or sum(lengths) != len(task.input_ids):
        raise InvalidRequestError(
            f"row_lengths must be 1 or more each and add up to input_lengths, "
            f"{len(task.input_ids)}; given {lengths}"
        )
    if len(salts) != len(lengths):
        raise InvalidRequestError(
            f"row_cache_salts must have one entry for each of {len(lengths)} rows; "
            f"given {len(salts)}"
        )
    if streaming or len(task.draft_ids):
        raise InvalidRequestError("a call with row_lengths neither streams nor verifies a draft")
    if task.params.looks_back or contract.PROMPT_LENGTH in arrays:
        raise InvalidRequestError(
            "a call with row_lengths takes no prompt_length, penalties, min_tokens or guide"
        )
    ends = np.cumsum(lengths).tolist()
    # All rows keep the call's id, so that a stop request ends them all.
    return tuple(
        replace(
            task,
            input_ids=task.input_ids[end - length : end],
            num_prompt_tokens=0,
            cache_salt=salt.decode(errors="replace"),
        )
        for length, end, salt in zip(lengths, ends, salts, strict=True)
    )


def _verification(arrays: Arrays) -> str:
    """Return the verification mode that the call asks for.

    If it asks for none, use that of NVIDIA's backend: `rejection` with draft logits, else `exact`.
    """
    default = EXACT if contract.DRAFT_LOGITS not in arrays else REJECTION
    if contract.VERIFICATION not in arrays:
        return default
    name = str(_scalar(arrays, contract.VERIFICATION, b"").decode())
    if name not in VERIFICATION_MODES:
        raise InvalidRequestError(
            f"verification must be one of {VERIFICATION_MODES}; given {name!r}"
        )
    return name


def _bad_words(arrays: Arrays) -> tuple[tuple[int, ...], ...]:
    if contract.BAD_WORDS_LIST not in arrays:
        return ()
    try:
        return contract.words_of(arrays[contract.BAD_WORDS_LIST])
    except ValueError as error:
        raise InvalidRequestError(f"bad_words_list: {error}") from None


def _bad_texts(arrays: Arrays) -> tuple[str, ...]:
    if contract.BAD_TEXTS not in arrays:
        return ()
    try:
        return tuple(text for each in arrays[contract.BAD_TEXTS].ravel() if (text := each.decode()))
    except UnicodeDecodeError:
        raise InvalidRequestError("bad_texts must be UTF-8 texts") from None


def _guide(arrays: Arrays) -> Guide | None:
    kind = _text(arrays, contract.GUIDE_TYPE)
    if not kind:
        return None
    if kind not in GUIDE_KINDS:
        raise InvalidRequestError(
            f"guided_decoding_guide_type must be one of {', '.join(GUIDE_KINDS)}; given {kind!r}"
        )
    return Guide(kind, _text(arrays, contract.GUIDE))


def _text(arrays: Arrays, name: str) -> str:
    """Return a text, empty if it is absent. Raises InvalidRequestError if it is not UTF-8."""
    try:
        return str(_scalar(arrays, name, b"").decode())
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{name} must be a UTF-8 text") from None


def _logit_bias(arrays: Arrays) -> tuple[tuple[int, float], ...]:
    bias = arrays.get(contract.EMBEDDING_BIAS, np.zeros(0, dtype=np.float32)).ravel()
    if not np.isfinite(bias).all():
        raise InvalidRequestError("embedding_bias must be finite")
    return tuple((token, float(bias[token])) for token in np.flatnonzero(bias).tolist())


def _scalar(arrays: Arrays, name: str, default: Any) -> Any:
    if name not in arrays:
        return default
    value = arrays[name].ravel()[0]
    return value if isinstance(value, bytes) else value.item()


def _either(arrays: Arrays, name: str, older_name: str, maximum: int) -> int:
    return _integer(arrays, name if name in arrays else older_name, 0, maximum)


def _integer(arrays: Arrays, name: str, minimum: int, maximum: int) -> int:
    value = int(_scalar(arrays, name, minimum))
    if not minimum <= value <= maximum:
        raise InvalidRequestError(f"{name} must lie from {minimum} to {maximum}; given {value}")
    return value


def _optional_integer(arrays: Arrays, name: str, minimum: int) -> int | None:
    return _integer(arrays, name, minimum, 2**31 - 1) if name in arrays else None


def _number(arrays: Arrays, name: str, default: float, minimum: float, maximum: float) -> float:
    value = float(_scalar(arrays, name, default))
    if not (math.isfinite(value) and minimum <= value <= maximum):
        raise InvalidRequestError(
            f"{name} must be a finite number from {minimum:g} to {maximum:g}; given {value:g}"
        )
    return value
