"""Checks of LlamaIndex's `NvidiaTriton`, which asks the model `specdec` over gRPC."""

import os

from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.nvidia_triton import NvidiaTriton
from tritonclient.utils import InferenceServerException

from tests.interop.clients.kit import check, equal, limit, main, raised


def model(expected, **more):
    """Return the model with the package's defaults, which are greedy: `top_k` 1, `top_p` 0."""
    given = {
        "server_url": os.environ["SPECDEC_GRPC_URL"],
        # The constructor's argument `model` is ignored, so the field is given.
        "model_name": "specdec",
        "tokens": expected.max_tokens,
    }
    return NvidiaTriton(**given | more)


def messages(expected):
    """Return the chat in LlamaIndex's form; the package sends it as a labelled text."""
    return [ChatMessage(role="user", content=expected.question)]


@check
def complete(expected):
    """Compare the text."""
    equal(model(expected).complete(expected.prompt).text, expected.completion.text)


@check
def stream_complete(expected):
    """Join the pieces of a stream; the last one has the whole text."""
    pieces = list(model(expected).stream_complete(expected.prompt))
    assert len(pieces) > 2
    equal("".join(each.delta for each in pieces), expected.completion.text)
    equal(pieces[-1].text, expected.completion.text)
    return f"{len(pieces)} pieces"


@check
def chat_as_a_labelled_text(expected):
    """Compare the text of a chat, whole and streamed."""
    found = model(expected).chat(messages(expected))
    equal(found.message.content, expected.labelled.text)
    pieces = list(model(expected).stream_chat(messages(expected)))
    equal("".join(each.delta for each in pieces), expected.labelled.text)


@check
def sampling_with_a_seed(expected):
    """Draw twice; the package sends the seed 0, so both texts are the same.

    It may lose the last token of either, since it stops after `tokens` - 1 responses.
    """
    asked = model(expected, temperature=0.8, top_k=40, top_p=0.9)
    texts = (asked.complete(expected.prompt).text for _ in range(2))
    shorter, longer = sorted(texts, key=len)
    assert shorter
    equal(longer[: len(shorter)], shorter)


@check
def reused_client(expected):
    """Ask twice over one connection."""
    asked = model(expected, reuse_client=True)
    for _ in range(2):
        equal(asked.complete(expected.prompt).text, expected.completion.text)


@check
def load_model_call(expected):
    """Let the package ask whether the model is loaded before each request."""
    asked = model(expected, triton_load_model_call=True)
    equal(asked.complete(expected.prompt).text, expected.completion.text)


@check
def errors(expected):
    """Get the server's words for a wrong value; the next answer comes as usual."""
    asked = model(expected, repetition_penalty=1000)
    error = raised(InferenceServerException, lambda: asked.complete(expected.prompt))
    assert "invalid_request" in str(error)
    asked = model(expected, beam_width=2)
    error = raised(InferenceServerException, lambda: asked.complete(expected.prompt))
    assert "unsupported" in str(error)
    equal(model(expected).complete(expected.prompt).text, expected.completion.text)


@limit
def argument_model_of_the_constructor(expected):
    """Name the model by `model`, which the package ignores: it asks for `ensemble`."""
    asked = NvidiaTriton(server_url=os.environ["SPECDEC_GRPC_URL"], model="specdec")
    raised(RuntimeError, lambda: asked.complete(expected.prompt))


@limit
def asynchronous_methods(expected):
    """Use a method that the package lacks."""
    coroutine = model(expected).acomplete(expected.prompt)
    raised(NotImplementedError, lambda: coroutine.send(None))


if __name__ == "__main__":
    main()
