"""Read a request as the backend does, and refuse what it refuses.

The backend refuses at two stages: before the request reaches the executor, and in the executor
(LlmRequest::validate). Messages of the second stage begin with other words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.acceptance.sampling import SamplingParams
from specdec.engines.wire.sampling_call import sampling_params
from specdec.errors import InvalidRequestError
from specdec.torch_engine.task import NO_TOKENS, Task
from tests.doubles.tensorrtllm.built import BuiltEngine

Arrays = Mapping[str, npt.NDArray[Any]]

ASSERTION = "[TensorRT-LLM][ERROR] Assertion failed: "
NOT_SIMULATED = frozenset(
    {
        *("encoder_input_features", "decoder_input_ids", "stop_words_list", "lora_task_id"),
        *("prompt_embedding_table", "context_phase_params", "guided_decoding_guide"),
        *("lookahead_window_size", "return_context_logits", "num_return_sequences"),
    }
)


class Refusal(Exception):  # noqa: N818 - the backend's words, not an error of the double
    """The backend refuses the request before it reaches the executor."""


class ExecutorFailure(Refusal):
    """The executor refuses the request."""

    def __init__(self, words: str) -> None:
        super().__init__(f"Encountered an error when fetching new request: {words}")


@dataclass(frozen=True, slots=True)
class BackendCall:
    """A request to generate or verify, as the torch engine runs it."""

    task: Task
    streaming: bool
    excludes_input: bool
    """Whether `output_ids` leaves out the prompt."""
    returns_perf_metrics: bool
    temperature: float
    """Temperature of the draws. Logits are multiplied by it, to return those of the model itself;
    1 if greedy."""


def stops(arrays: Arrays, request_id: str) -> bool:
    """Return whether the request asks to stop the request with its id.

    The backend checks this first. Raise Refusal if a stop request has no id.
    """
    if not _scalar(arrays, "stop", False):
        return False
    if not request_id:
        raise Refusal("Trying to stop a request but request ID is not provided")
    return True


def read_call(
    arrays: Arrays, engine: BuiltEngine, *, is_decoupled: bool, excludes_input: bool
) -> BackendCall:
    """Return the call that a request asks for; raise Refusal or ExecutorFailure.

    `arrays` are the inputs with their batch dimension. `excludes_input` holds if the request does
    not set exclude_input_in_output.
    """
    streaming = _scalar(arrays, "streaming", False)
    _check_transport(arrays, is_decoupled, streaming)
    if unknown := sorted(NOT_SIMULATED & arrays.keys()):
        raise Refusal(f"the double does not simulate {', '.join(unknown)}")
    ids = _row(arrays, "input_ids")
    if ids is None:
        raise Refusal("input_ids is not present in the request.")
    ids = ids[: _scalar(arrays, "input_lengths", 0)]
    num_output = _scalar(arrays, "request_output_len", 0)
    drafts, logits = _draft(arrays, engine)
    end_id = _scalar(arrays, "end_id", -1)
    for holds, words in (
        (ids.size, "!mInputTokenIds.empty()"),
        (num_output > 0, "mMaxNewTokens > 0"),
        (_scalar(arrays, "beam_width", 1) == 1, "beamWidth <= getMaxBeamWidth()"),
        (_bias_fits(arrays, engine), _expected_bias(engine)),
    ):
        if not holds:
            raise Refusal(ASSERTION + words)
    drafts, num_output = _validated(ids, drafts, num_output, end_id, engine)
    params = _sampling_params(arrays)
    wants_logits = _scalar(arrays, "return_generation_logits", False)
    _check_logits(wants_logits, params, engine, streaming=streaming, is_drafted=drafts.size > 0)
    return BackendCall(
        task=Task(
            request_id="",
            input_ids=ids,
            max_new_tokens=num_output,
            draft_ids=drafts,
            end_id=None if end_id < 0 else end_id,
            params=replace(
                params,
                # The backend counts from the end of the input. The task declares no prompt, so
                # the engine counts from the beginning.
                min_tokens=params.min_tokens and params.min_tokens + len(ids),
                seed=_own_noise(params.seed, len(ids)),
            ),
            wants_logits=wants_logits,
            verification="exact" if logits is None else "rejection",
            draft_logits=None if logits is None else logits[: len(drafts)],
            wants_log_probs=_scalar(arrays, "return_log_probs", False),
        ),
        streaming=streaming,
        excludes_input=_scalar(arrays, "exclude_input_in_output", excludes_input),
        returns_perf_metrics=_scalar(arrays, "return_perf_metrics", False),
        temperature=1.0 if params.is_greedy else params.temperature,
    )


def _check_transport(arrays: Arrays, is_decoupled: bool, streaming: bool) -> None:
    """Refuse batches and streams that a model cannot answer with its transaction policy.

    Source: utils.cc:900-907 of tensorrtllm_backend v0.19.0 [V].
    """
    num_sequences = max(len(array) for array in arrays.values())
    if num_sequences > 1 and not is_decoupled:
        raise Refusal(
            "Batch size > 1 requires the tensorrt_llm backend to be using decoupled transaction "
            "policy"
        )
    if num_sequences > 1:
        raise Refusal("the double does not simulate a batch in one request")
    if streaming and not is_decoupled:
        raise Refusal("Streaming is only supported if model is deployed using decoupled mode.")


def _draft(
    arrays: Arrays, engine: BuiltEngine
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32] | None]:
    """Return the draft tokens and their logits [n, vocabulary], if the request has them.

    Refuse as ExternalDraftTokensConfig does (decodingConfig.cpp) [V].
    """
    drafts = _row(arrays, "draft_input_ids")
    if drafts is None:
        return NO_TOKENS, None
    if not drafts.size:
        raise Refusal(ASSERTION + "!mTokens.empty()")
    if "draft_acceptance_threshold" in arrays:
        threshold = _scalar(arrays, "draft_acceptance_threshold", 0.0)
        if not 0.0 < threshold <= 1.0:
            raise Refusal(f"{ASSERTION}mAcceptanceThreshold must be in (0, 1], got {threshold:g}")
    if "draft_logits" not in arrays:
        return drafts, None
    logits = arrays["draft_logits"][0]
    if logits.shape != (len(drafts), engine.num_columns):
        raise Refusal(
            f"{ASSERTION}draft logits must be [{len(drafts)}, {engine.num_columns}], got "
            f"{list(logits.shape)}"
        )
    return drafts, logits[:, : engine.num_tokens]


def _validated(
    ids: npt.NDArray[np.int32],
    drafts: npt.NDArray[np.int32],
    num_output: int,
    end_id: int,
    engine: BuiltEngine,
) -> tuple[npt.NDArray[np.int32], int]:
    """Return the draft and the number of output tokens, shortened without notice to the limits.

    Raise ExecutorFailure for the rest, as LlmRequest::validate of release 1.2 does [V].
    """
    if not -1 <= end_id < engine.num_columns:
        raise ExecutorFailure(
            f"{ASSERTION}EndId ({end_id}) is not within acceptable range [-1, {engine.num_columns})"
        )
    if len(ids) > engine.max_input_len:
        raise ExecutorFailure(
            f"Prompt length ({len(ids)}) exceeds maximum input length ({engine.max_input_len})."
        )
    if len(drafts) > engine.max_draft_len:
        raise ExecutorFailure(
            f"Draft tokens length ({len(drafts)}) exceeds maximum draft tokens length "
            f"({engine.max_draft_len})."
        )
    for token in (*ids.tolist(), *drafts.tolist()):
        if not 0 <= token < engine.num_tokens:
            raise ExecutorFailure(f"Token id {token} is out of range [0, {engine.num_tokens})")
    drafts = drafts[: engine.max_input_len - len(ids)]
    num_output = min(num_output, engine.max_seq_len - len(ids) - len(drafts))
    if num_output < 1:
        raise ExecutorFailure(
            f"Prompt length ({len(ids)}) leaves no room in the maximum sequence length "
            f"({engine.max_seq_len})."
        )
    return drafts, num_output


def _check_logits(
    wants_logits: bool,
    params: SamplingParams,
    engine: BuiltEngine,
    *,
    streaming: bool,
    is_drafted: bool,
) -> None:
    if not wants_logits:
        return
    if not engine.has_generation_logits:
        raise ExecutorFailure("generation logits need an engine with gather_generation_logits")
    if streaming and is_drafted:
        raise ExecutorFailure("generation logits of draft tokens cannot be streamed")
    if params != SamplingParams(params.temperature, seed=params.seed):
        raise Refusal("the double has the model's own logits at a plain temperature only")


def _sampling_params(arrays: Arrays) -> SamplingParams:
    try:
        return sampling_params({name: array[0] for name, array in arrays.items()})
    except InvalidRequestError as error:
        raise ExecutorFailure(f"{ASSERTION}Incorrect sampling config ({error})") from None


def _own_noise(seed: int, num_input: int) -> int:
    """Return another seed for each prompt length.

    The backend's random generators start again with each request, so that noise does not belong to
    a position as in our engine.
    """
    return (seed ^ (num_input * 0x9E3779B97F4A7C15)) % 2**64


def _bias_fits(arrays: Arrays, engine: BuiltEngine) -> bool:
    bias = _row(arrays, "embedding_bias")
    return bias is None or len(bias) == engine.num_columns


def _expected_bias(engine: BuiltEngine) -> str:
    """Return the backend's message for a bias of the wrong size (tensorrtllm_backend #720)."""
    return (
        "The embedding bias shape is not as expected. Expected last dimension to be same as vocab "
        f"size: {engine.num_columns}."
    )


def _row(arrays: Arrays, name: str) -> npt.NDArray[Any] | None:
    return arrays[name].reshape(-1) if name in arrays else None


def _scalar(arrays: Arrays, name: str, default: Any) -> Any:
    return arrays[name].reshape(-1)[0].item() if name in arrays else default
