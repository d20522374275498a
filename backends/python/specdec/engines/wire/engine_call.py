"""Parses the call of an engine model from the tensors of the contract (contract.py).

The functions are pure. They take arrays and return an immutable call, or raise InvalidRequestError
for inputs that NVIDIA's C++ backend refuses too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from specdec.acceptance.modes import EXACT, REJECTION, VERIFICATION_MODES
from specdec.acceptance.sampling import SamplingParams
from specdec.engines.wire import contract
from specdec.engines.wire.call_values import Arrays, integer, optional_integer, scalar
from specdec.engines.wire.sampling_call import sampling_params
from specdec.errors import InvalidRequestError
from specdec.token_ids import MAX_TOP_LOG_PROBS
from specdec.torch_engine.task import NO_TOKENS, Task


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
    stop = scalar(arrays, contract.STOP, False)
    if stop and not request_id:
        raise InvalidRequestError("a stop request needs the id of the request to stop")
    if contract.DRAFT_INPUT_IDS in arrays and not arrays[contract.DRAFT_INPUT_IDS].size:
        raise InvalidRequestError("draft_input_ids is empty; leave it out to verify no draft")
    input_ids = arrays.get(contract.INPUT_IDS, NO_TOKENS).ravel()
    num_input = scalar(arrays, contract.INPUT_LENGTHS, 0)
    num_output = scalar(arrays, contract.REQUEST_OUTPUT_LEN, 0)
    if not stop:
        if num_input != len(input_ids):
            raise InvalidRequestError(
                f"input_lengths is {num_input}, input_ids has {len(input_ids)} tokens"
            )
        if num_output < 1:
            raise InvalidRequestError(f"request_output_len must be at least 1; given {num_output}")
    num_top = integer(arrays, contract.NUM_TOP_LOG_PROBS, 0, MAX_TOP_LOG_PROBS)
    wants_log_probs = scalar(arrays, contract.RETURN_LOG_PROBS, False)
    if num_top and not wants_log_probs:
        raise InvalidRequestError(
            f"num_top_log_probs must be 0 without return_log_probs; given {num_top}"
        )
    streaming = scalar(arrays, contract.STREAMING, False)
    end_id = scalar(arrays, contract.END_ID, -1)
    params = sampling_params(arrays)
    if params.guide is not None and streaming and end_id < 0:
        raise InvalidRequestError("a streaming call with a guide needs an end_id, to end there")
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
        wants_logits=scalar(arrays, contract.RETURN_GENERATION_LOGITS, False),
        verification=_verification(arrays),
        draft_logits=arrays.get(contract.DRAFT_LOGITS),
        wants_log_probs=wants_log_probs,
        num_top_log_probs=num_top,
        num_next=optional_integer(arrays, contract.NUM_NEXT_DRAFTS, 0),
        cache_salt=scalar(arrays, contract.CACHE_SALT, b"").decode(errors="replace"),
        next_depth=optional_integer(arrays, contract.NEXT_DRAFT_DEPTH, 1),
    )
    return EngineCall(
        task=task,
        stop=stop,
        streaming=streaming,
        exclude_input=scalar(arrays, contract.EXCLUDE_INPUT_IN_OUTPUT, False),
        return_perf_metrics=scalar(arrays, contract.RETURN_PERF_METRICS, False),
        requested_outputs=requested_outputs,
        gives_receipts=gives_receipts and streaming,
        drafting=scalar(arrays, contract.DRAFTING, b"").decode(errors="replace"),
        rows=_rows(arrays, task, streaming=streaming),
    )


def _num_prompt_tokens(arrays: Arrays, params: SamplingParams, num_input: int) -> int:
    """Return how many tokens of input_ids are prompt.

    Without prompt_length a guide begins after input_ids, as in NVIDIA's backend.
    """
    if params.guide is not None and contract.PROMPT_LENGTH not in arrays:
        return num_input
    return integer(arrays, contract.PROMPT_LENGTH, 0, num_input)


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
    name = str(scalar(arrays, contract.VERIFICATION, b"").decode())
    if name not in VERIFICATION_MODES:
        raise InvalidRequestError(
            f"verification must be one of {VERIFICATION_MODES}; given {name!r}"
        )
    return name
