"""Tests of the clients' data: requests on the wire, joined responses, and errors."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.clients import AnswerEnd, Chunk, GenerationRequest, SpecdecError, collect
from specdec.clients.request import INPUTS
from specdec.clients.response import chunk_from_outputs

LAST = AnswerEnd(finish_reason="length", num_output_tokens=3)


def tensors(**fields):
    """Return the tensors of a streaming request by name."""
    return {item.name: item for item in GenerationRequest(**fields).tensors(stream=True)}


def test_only_what_is_set_is_sent():
    """Fields that are not set are not sent, except `stream`: the server's defaults apply."""
    assert list(tensors(text_input="x")) == ["text_input", "stream"]
    assert list(tensors()) == ["stream"]


def test_scalars_and_lists_have_the_shapes_of_the_interface():
    """Scalars are sent as [1, 1] and lists as [1, n], the shapes that NVIDIA's models take."""
    sent = tensors(max_tokens=3, stop_words=["a", "b"], input_ids=[1, 2, 3])

    assert sent["max_tokens"].shape == (1, 1)
    assert sent["stop_words"].shape == (1, 2)
    assert sent["input_ids"].values == (1, 2, 3)


def test_messages_are_sent_as_json():
    """Chat messages become one JSON string; a string is sent unchanged."""
    messages = [{"role": "user", "content": "Grüße"}]

    (sent,) = tensors(messages=messages)["messages"].values
    assert json.loads(sent) == messages
    assert tensors(messages="[]")["messages"].values == ("[]",)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 2**31),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("input_ids", [1, "2"]),
        ("seed", -1),
        ("temperature", 1e39),
        ("temperature", "0"),
        ("stream", 1),
        ("drafter", 3),
        ("stop_words", ["a", None]),
    ],
)
def test_value_that_its_type_cannot_hold_is_refused_by_the_client(field, value):
    """The error names the field, and is raised before anything is sent."""
    # `tensors` always sets `stream`, so another BOOL takes its place here.
    field = "return_log_probs" if field == "stream" else field

    with pytest.raises(SpecdecError, match=field) as caught:
        tensors(**{field: value})

    assert caught.value.error_type == "client_invalid_request"
    assert caught.value.status == "INVALID_ARG"


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_values_out_of_range_are_left_to_the_server(value):
    """The client does not check the server's ranges, and sends even NaN."""
    (sent,) = tensors(temperature=value)["temperature"].values

    assert sent == pytest.approx(value, nan_ok=True)


def test_every_input_has_a_type():
    """The table of inputs has each field of a request except its id."""
    fields = set(GenerationRequest.__dataclass_fields__) - {"request_id"}

    assert set(INPUTS) == fields
    assert {spec.datatype for spec in INPUTS.values()} == {
        "BYTES",
        "BOOL",
        "INT32",
        "UINT64",
        "FP32",
    }


@pytest.mark.parametrize(
    ("text", "error_type", "message"),
    [
        ("overloaded: 64 of 64", "overloaded", "64 of 64"),
        ("invalid_request: a: b\nc", "invalid_request", "a: b\nc"),
        ("Request for unknown model: 'x'", "triton", "Request for unknown model: 'x'"),
        ("", "triton", ""),
    ],
)
def test_error_type_is_the_head_of_the_message(text, error_type, message):
    """The word before the colon is the error_type; for Triton's own texts it is `triton`."""
    error = SpecdecError.from_server(text, "UNAVAILABLE")

    assert (error.error_type, error.message) == (error_type, message)
    assert "UNAVAILABLE" in str(error)


@given(st.lists(st.tuples(st.text(), st.lists(st.integers(0, 9))), min_size=1))
def test_collected_chunks_are_their_concatenation(parts):
    """However an answer is cut into chunks, nothing is lost, repeated or moved."""
    chunks = [Chunk(text, tuple(ids), tuple(ids)) for text, ids in parts]
    chunks.append(Chunk("", (), (), end=LAST))

    whole = collect(chunks)

    assert whole.text == "".join(text for text, _ in parts)
    assert whole.token_ids == tuple(token for _, ids in parts for token in ids)
    assert whole.sources == whole.token_ids
    assert whole.end is LAST


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [Chunk("a", (1,), (0,))],
        [Chunk("a", (1,), (0,), end=LAST), Chunk("b", (2,), (0,))],
    ],
)
def test_answer_without_its_end_is_an_error(chunks):
    """Chunks without a last one, or with one after it, are not taken for a whole answer."""
    with pytest.raises(SpecdecError) as caught:
        collect(chunks)

    assert caught.value.error_type == "client_broken_answer"


def test_outputs_become_a_chunk_with_its_final():
    """The tensors of the last response are read by name, and its JSON is parsed."""
    chunk = chunk_from_outputs(
        {
            "text_output": ["hi"],
            "output_ids": [5, 6],
            "output_sources": [1, 0],
            "output_log_probs": [-0.5, -0.25],
            "finish_reason": ["stop"],
            "seed": [7],
            "speculative_decoding": ['{"num_spec_steps": 1}'],
        }
    )

    assert chunk.log_probs == (-0.5, -0.25)
    assert chunk.end == AnswerEnd(
        finish_reason="stop", seed=7, speculative_decoding={"num_spec_steps": 1}
    )
    assert chunk_from_outputs({"text_output": ["hi"], "finish_reason": [""]}).end is None


@pytest.mark.parametrize(
    "outputs",
    [
        {"output_ids": [1, 2], "output_sources": [0]},
        {"finish_reason": ["stop"], "speculative_decoding": ["{"]},
    ],
)
def test_broken_outputs_are_an_error(outputs):
    """A token without a source, or statistics that are no JSON, raise client_broken_answer."""
    with pytest.raises(SpecdecError, match="client_broken_answer"):
        chunk_from_outputs(outputs)
