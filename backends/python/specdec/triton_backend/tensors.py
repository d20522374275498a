"""Convert Triton's requests to arrays, and arrays or errors to Triton's responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from specdec.errors import InvalidRequestError, SpecdecError


def input_arrays(request: Any) -> dict[str, npt.NDArray[Any]]:
    """Return a Triton request's inputs by name, each without its batch dimension of 1.

    Raises InvalidRequestError for another batch size.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for tensor in request.inputs():
        array = tensor.as_numpy()
        if array.ndim and array.shape[0] != 1:
            raise InvalidRequestError(
                f"one request is one sequence; input {tensor.name()} has a batch of "
                f"{array.shape[0]}, the limit is 1"
            )
        arrays[tensor.name()] = array.reshape(array.shape[1:])
    return arrays


def texts_of(request: Any) -> tuple[str, str]:
    """Return a Triton request's id, and its parameters as JSON text.

    Raises InvalidRequestError if they are not UTF-8, which Triton's HTTP endpoint does not check.
    """
    try:
        return request.request_id(), request.parameters()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"the request's id and its parameters must be UTF-8; given {error.object!r:.200}"
        ) from None


OUTPUT_WITHOUT_BATCH = "text_output"
"""The output that has no batch dimension.

NVIDIA's model `postprocessing` (triton-inference-server/tensorrtllm_backend) gives it none either,
and clients such as LlamaIndex's and LangChain's take its element [0] as the text.
"""


def response(outputs: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return an InferenceResponse with `outputs`, all but one with a batch dimension of 1 added."""
    tensors = [
        pb_utils.Tensor(name, array if name == OUTPUT_WITHOUT_BATCH else array[None])
        for name, array in outputs.items()
    ]
    return pb_utils.InferenceResponse(output_tensors=tensors)


def error_response(error: Exception) -> Any:
    """Return an InferenceResponse with the error's text and Triton code, never a traceback.

    Any error but a SpecdecError becomes one of type `internal`, without its text.
    """
    if not isinstance(error, SpecdecError):
        error = SpecdecError("an unexpected failure; the server's log has the details")
    # Looked up late: while Triton completes a configuration, pb_utils has no TritonError yet.
    code = getattr(pb_utils.TritonError, error.status.value)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), code))


FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
"""Flag of the last response to a request."""
