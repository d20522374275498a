"""NVIDIA's OpenAI frontend can serve the model `specdec`.

The frontend itself runs Triton within its process, which this server cannot. Here its requests are
built, and its answers read, as engine/utils/triton.py of triton-inference-server/server does for
models that are not vLLM's.
"""

import numpy as np
import pytest

from specdec.clients import GenerationRequest, GrpcClient
from tests.server.support.live import Failure, RawClient

PROMPT = "The three longest rivers are"


def inputs_of(**asked):
    """Return the tensors of a request; the frontend sends all of these for each one."""
    sampling = {"top_p": 1.0, "temperature": 0.0, "frequency_penalty": 0.0} | asked
    given = {
        "text_input": np.array([[PROMPT]], np.object_),
        "stream": np.array([[True]], np.bool_),
        "max_tokens": np.array([[20]], np.int32),
        "presence_penalty": np.array([[0.0]], np.float32),
        "seed": np.array([[5]], np.uint64),
        "return_num_input_tokens": np.array([[True]], np.bool_),
        "return_num_output_tokens": np.array([[True]], np.bool_),
    }
    given |= {name: np.array([[value]], np.float32) for name, value in sampling.items()}
    given["text_input"][0, 0] = PROMPT.encode()
    return given


def read(responses):
    """Return text and numbers of tokens; both numbers count only where a response has both."""
    texts, num_prompt, num_answer = [], None, 0
    for response in responses:
        if not response.outputs:
            assert response.is_final
            continue
        (text,) = response.outputs["text_output"].ravel()
        texts.append(text.decode())
        numbers = [response.outputs.get(f"num_{what}_tokens") for what in ("input", "output")]
        if all(each is not None for each in numbers):
            num_prompt = int(numbers[0].item())
            num_answer += int(numbers[1].item())
    return "".join(texts), num_prompt, num_answer


@pytest.fixture
def client(server):
    """Return a client that sends the frontend's tensors."""
    found = RawClient(server.grpc_url)
    yield found
    found.close()


def test_its_requests_get_the_models_answer(server, client):
    """The text and the numbers of tokens are those of our own client."""
    with GrpcClient(server.grpc_url, timeout_s=60) as own:
        expected = own.generate(GenerationRequest(text_input=PROMPT, max_tokens=20))
    found = read(client.stream("specdec", inputs_of()))
    end = expected.end
    assert found == (expected.text, end.num_input_tokens, end.num_output_tokens)


def test_top_p_of_zero_is_greedy(client):
    """OpenAI's clients write it so."""
    greedy = read(client.stream("specdec", inputs_of()))
    assert read(client.stream("specdec", inputs_of(top_p=0.0, temperature=0.9))) == greedy


def test_guides_of_nvidias_frontend_are_followed(client):
    """Without one it sends empty texts; one of an unknown type is refused by name."""

    def guide(kind, text):
        given = {"guided_decoding_guide_type": kind, "guided_decoding_guide": text}
        return {name: np.array([[value]], np.object_) for name, value in given.items()}

    found, *_ = read(client.stream("specdec", inputs_of() | guide(b"regex", b"(Nile|Rhine)!")))
    assert found in {"Nile!", "Rhine!"}
    assert client.infer("specdec", inputs_of() | guide(b"", b""))
    with pytest.raises(Failure, match="guided_decoding_guide_type must be one of json, "):
        client.infer("specdec", inputs_of() | guide(b"yaml", b"x"))
