"""Checks of LangChain's `TritonTensorRTLLM`, which asks the model `specdec` over gRPC."""

import os

import numpy as np
from langchain_nvidia_trt import TritonTensorRTLLM
from tritonclient.utils import InferenceServerException

from tests.interop.clients.kit import check, equal, limit, main, raised


class Int32LLM(TritonTensorRTLLM):
    """The class with the types of NVIDIA's present models: the package sends UINT32 for INT32."""

    def _prepare_tensor(self, name, input_data):
        is_old = input_data.dtype == np.uint32
        return super()._prepare_tensor(name, input_data.astype(np.int32) if is_old else input_data)


def model(expected, kind=Int32LLM, **more):
    """Return the model with the package's defaults, which are greedy: `top_k` 1, `top_p` 0."""
    given = {
        "server_url": os.environ["SPECDEC_GRPC_URL"],
        "model_name": "specdec",
        "tokens": expected.max_tokens,
    }
    return kind(**given | more)


@check
def invoke_with_int32(expected):
    """Compare the text."""
    equal(model(expected).invoke(expected.prompt), expected.completion.text)


@check
def stream_with_int32(expected):
    """Join the pieces of a stream."""
    pieces = list(model(expected).stream(expected.prompt))
    assert len(pieces) > 2
    equal("".join(pieces), expected.completion.text)
    return f"{len(pieces)} pieces"


@check
def batch_with_int32(expected):
    """Ask two prompts, one after the other, as the package does."""
    found = model(expected).generate([expected.prompt, expected.labelled_prompt])
    wanted = [expected.completion.text, expected.labelled.text]
    equal([each[0].text for each in found.generations], wanted)


@limit
def get_model_list(expected):
    """List the models, which Triton tells only administrators."""
    error = raised(InferenceServerException, lambda: model(expected).get_model_list())
    assert "restricted" in str(error)


@limit
def types_of_the_unmodified_package(expected):
    """Send UINT32, which Triton refuses; the package adds the error to the text and fails."""
    asked = model(expected, TritonTensorRTLLM)
    error = raised(TypeError, lambda: asked.invoke(expected.prompt))
    assert "InferenceServerException" in str(error)
    equal(model(expected).invoke(expected.prompt), expected.completion.text)


if __name__ == "__main__":
    main()
